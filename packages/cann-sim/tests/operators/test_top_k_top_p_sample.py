"""Sampling among the k largest logits that make up a probability, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.operator_call import call_operator

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
ROWS, VOCABULARY, EPSILON = 6, 64, 1e-8


def kept(
    row: torch.Tensor, k: int, p: float, least: float, *, logits: bool = True
) -> tuple[list[int], torch.Tensor]:
    """Return the places that are left of a row, and their probabilities in float64."""
    cuts_k, cuts_p = 1 <= k <= len(row), p < 1
    wide = row.double()
    order = sorted(range(len(row)), key=lambda place: (-wide[place].item(), place))
    if not cuts_k and not cuts_p and least < 1:
        order = list(range(len(row)))
    places = order[:k] if cuts_k else order
    weights = wide[places].softmax(0) if logits else wide[places]
    if cuts_p:
        before, count = 0.0, 0
        while count < len(places) and (count == 0 or before < p):
            before += weights[count].item()
            count += 1
        places, weights = places[:count], weights[:count]
    if least >= 1:
        places, weights = places[:1], weights[:1]
    elif least > 0:
        left = [n for n in range(len(places)) if weights[n] >= weights.max() * least]
        places, weights = [places[n] for n in left], weights[left]
    return places, weights


def parameters(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # By row: both, k alone, p alone, neither, one token, and a k that is too large.
    k = torch.tensor([5, 7, 0, 0, 5, VOCABULARY + 1], dtype=torch.int32)
    p = torch.tensor([0.7, 1.0, 0.5, 1.0, 0.0, 0.9]).to(dtype)
    return random(ROWS, VOCABULARY, seed=1, dtype=dtype) * 2, k, p


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("least", [None, 0.0, 0.3, 1.0])
def test_the_largest_of_what_is_left_is_chosen(
    dtype: torch.dtype, sampled: bool, least: float | None
) -> None:
    logits, k, p = parameters(dtype)
    q = random(ROWS, VOCABULARY, seed=2).abs() + 0.1 if sampled else None
    shares = None if least is None else torch.full((ROWS,), least).to(dtype).to("npu")
    chosen, selected = torch_npu.npu_top_k_top_p_sample(
        *(logits.to("npu"), k.to("npu"), p.to("npu")),
        q=None if q is None else q.to("npu"),
        is_need_logits=True,
        min_ps=shares,
        post_sample="qSample" if sampled else "None",
    )
    for row in range(ROWS):
        share = 0.0 if shares is None else shares[row].item()
        places, weights = kept(logits[row], int(k[row]), p[row].item(), share)
        if q is not None:
            weights = weights / (q[row, : len(places)].double() + EPSILON)
        assert chosen[row].item() == places[int(weights.argmax())]
        expected = torch.full((VOCABULARY,), -math.inf)
        expected[places] = logits[row, places].float()
        assert torch.equal(selected[row].cpu(), expected)


def test_probabilities_are_taken_as_they_are() -> None:
    logits, k, p = parameters(torch.float32)
    weights = logits.softmax(-1)
    chosen, selected = torch_npu.npu_top_k_top_p_sample(
        *(weights.to("npu"), k.to("npu"), p.to("npu")),
        is_need_logits=True,
        input_is_logits=False,
        post_sample="None",
    )
    for row in range(ROWS):
        places, values = kept(weights[row], int(k[row]), p[row].item(), 0, logits=False)
        assert chosen[row].item() == places[int(values.argmax())]
        expected = torch.zeros(VOCABULARY)
        expected[places] = weights[row, places]
        assert torch.equal(selected[row].cpu(), expected)


def test_multinomial_choices_are_among_what_is_left() -> None:
    logits, k, p = parameters(torch.float32)
    for seed in range(5):
        generator = torch.Generator(device="npu").manual_seed(seed)
        chosen, _ = torch_npu.npu_top_k_top_p_sample(
            *(logits.to("npu"), k.to("npu"), p.to("npu")),
            post_sample="multiNomial",
            generator=generator,
        )
        for row in range(ROWS):
            places, _ = kept(logits[row], int(k[row]), p[row].item(), 0)
            assert chosen.flatten()[row].item() in places


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_first_version_equals_the_second(dtype: torch.dtype) -> None:
    logits, k, p = (tensor.to("npu") for tensor in parameters(dtype))
    q = random(ROWS, VOCABULARY, seed=2).abs().to("npu")
    expected = torch_npu.npu_top_k_top_p_sample(logits, k, p, q=q, is_need_logits=True)
    results = [torch.empty_like(tensor) for tensor in expected]
    call_operator("aclnnTopKTopPSample", logits, k, p, q, EPSILON, True, 32, *results)
    for result, reference in zip(results, expected, strict=True):
        assert torch.equal(result.cpu(), reference.cpu())


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (0, torch.zeros(ROWS, VOCABULARY).double(), "(?i)logits"),
        (1, torch.zeros(ROWS).long(), "'topK'.*int32"),
        (2, torch.zeros(ROWS).half(), "'topP'.*float32"),
        (2, torch.zeros(2), "'topP'"),
    ],
)
def test_what_the_device_refuses_is_refused(
    position: int, value: torch.Tensor, reason: str, capfd: Any
) -> None:
    del capfd
    given = list(parameters(torch.float32))
    given[position] = value
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_top_k_top_p_sample(*(tensor.to("npu") for tensor in given))
