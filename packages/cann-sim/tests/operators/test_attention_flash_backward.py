"""The gradient of FlashAttentionScore against automatic differentiation in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.flash_reference import (
    BATCH,
    COMPRESSED,
    DIM,
    FLOATS,
    HEADS,
    KEYS,
    LAYOUTS,
    LENGTH,
    attend,
    attend_apart,
    scores_of,
    weights_with_sink,
)

Function = Callable[..., torch.Tensor]
ULPS = 400


def gradients(
    function: Function, *inputs: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    leaves = [values.detach().clone().requires_grad_() for values in inputs]
    result = function(*leaves)
    return torch.autograd.grad(result, leaves, weight.to(result))


def compare(
    conformance: Any, device: Function, reference: Function, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Compare the gradients of both with respect to all inputs, for the same weights."""
    wide = tuple(values.double() for values in inputs)
    weight = random(*reference(*wide).shape, seed=77, dtype=inputs[0].dtype)
    own = tuple(values.to("npu") for values in inputs)
    results = gradients(device, *own, weight=weight)
    expected = gradients(reference, *wide, weight=weight)
    # The gradient takes the sum over weight * output from the rounded output. What it is off by
    # takes part in each gradient with a factor below 2 (scale, weights, operands).
    rounding = torch.finfo(inputs[0].dtype).eps / 2
    off = 2 * rounding * (weight.double() * reference(*wide)).abs().sum(-1).max()
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        magnitude = wanted.abs() + 16 + off / (ULPS * torch.finfo(torch.float32).eps)
        conformance.close(result.cpu(), wanted, ulps=ULPS, magnitude=magnitude)
    return results


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_gradient_in_each_layout_equals_reference(
    conformance: Any, layout: str, dtype: torch.dtype, kv_heads: int
) -> None:
    store = LAYOUTS[layout]
    shapes = ((BATCH, LENGTH, HEADS), (BATCH, KEYS, kv_heads), (BATCH, KEYS, kv_heads))
    inputs = [random(*shape, DIM, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]

    def device(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        stored = (store(q), store(k), store(v))
        result: torch.Tensor = torch_npu.npu_fusion_attention(*stored, HEADS, layout, scale=0.2)[0]
        return result

    compare(conformance, device, lambda q, k, v: store(attend(scores_of(q, k, 0.2), v)), *inputs)


def test_gradient_of_hidden_keys_is_zero_and_of_shifted_scores_equals_reference(
    conformance: Any,
) -> None:
    query, key, value = (
        random(BATCH, n, HEADS, DIM, seed=n, dtype=torch.float16) for n in (LENGTH, KEYS, KEYS)
    )
    hidden = torch.rand(LENGTH, KEYS, generator=torch.Generator().manual_seed(3)) < 0.4
    hidden[:, 0], hidden[:, 3] = False, True
    hidden[2] = True  # a query that sees nothing
    shift = random(1, HEADS, LENGTH, KEYS, seed=9, dtype=torch.float16)

    def device(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch_npu.npu_fusion_attention(
            q,
            k,
            v,
            HEADS,
            "BSND",
            pse=shift.to("npu"),
            atten_mask=hidden.to("npu"),
            scale=0.2,
            sparse_mode=1,
        )[0]
        return result

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = scores_of(q, k, 0.2) + shift.double()
        visible = (~hidden).any(-1)[:, None]
        return attend(scores.masked_fill(hidden & visible, -torch.inf), v) * visible[..., None]

    _, key_gradient, value_gradient = compare(conformance, device, reference, query, key, value)
    assert not key_gradient[:, 3].any()
    assert not value_gradient[:, 3].any()


@pytest.mark.parametrize("statistics", ["", "TND"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_of_packed_sequences_equals_reference(
    conformance: Any, statistics: str, dtype: torch.dtype
) -> None:
    queries, keys = [3, 0, 4], [5, 2, 4]
    query = random(7, HEADS, DIM, seed=0, dtype=dtype)
    key, value = (random(11, 2, DIM, seed=s, dtype=dtype) for s in (1, 2))

    def device(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch_npu.npu_fusion_attention(
            q,
            k,
            v,
            HEADS,
            "TND",
            atten_mask=COMPRESSED.to("npu"),
            scale=0.2,
            actual_seq_qlen=torch.tensor(queries).cumsum(0).tolist(),
            actual_seq_kvlen=torch.tensor(keys).cumsum(0).tolist(),
            sparse_mode=3,
            softmax_layout=statistics,
        )[0]
        return result

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend_apart(q, k, v, queries=queries, keys=keys, scale=0.2)

    compare(conformance, device, reference, query, key, value)


@pytest.mark.parametrize("statistics", ["", "TND"])
def test_statistics_of_packed_sequences_follow_their_layout(statistics: str) -> None:
    lengths = [2, 3]
    query, key = (random(5, HEADS, DIM, seed=seed, dtype=torch.float16) for seed in (0, 1))
    largest = torch_npu.npu_fusion_attention(
        query.to("npu"),
        key.to("npu"),
        key.to("npu"),
        HEADS,
        "TND",
        scale=0.2,
        actual_seq_qlen=[2, 5],
        actual_seq_kvlen=[2, 5],
        softmax_layout=statistics,
    )[1].cpu()
    parts = []
    for q, k in zip(torch.split(query, lengths), torch.split(key, lengths), strict=True):
        rows = scores_of(q[None], k[None], 0.2)[0].amax(-1)  # [N, S]
        parts.append((rows.t() if statistics else rows).flatten())
    assert torch.allclose(largest[..., 0].flatten().double(), torch.cat(parts), rtol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_gradient_of_sinks_and_rotary_parts_equals_reference(
    conformance: Any, packed: bool, sunk: bool, turned: bool
) -> None:
    if turned and (sunk or not packed):
        pytest.skip("torch_npu has rotary parts of packed sequences without sinks alone")
    dim, rope = (128, 64) if turned else (DIM, 0)
    ends = list(range(LENGTH, BATCH * LENGTH + 1, LENGTH))
    query, key = (
        random(BATCH, LENGTH, HEADS, dim + rope, seed=s, dtype=torch.bfloat16) for s in (0, 1)
    )
    value = random(BATCH, LENGTH, HEADS, dim, seed=2, dtype=torch.bfloat16)
    sink = random(HEADS, seed=3, dtype=torch.float32)

    def stored(values: torch.Tensor) -> torch.Tensor:
        return (values.flatten(0, 1) if packed else values).contiguous()

    def device(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        options: dict[str, Any] = {"scale": 0.1}
        if sunk:
            options["sink"] = s
        if packed:
            options |= {"actual_seq_qlen": ends, "actual_seq_kvlen": ends}
        if turned:
            options |= {"query_rope": stored(q[..., dim:]), "key_rope": stored(k[..., dim:])}
        parts = (stored(q[..., :dim]), stored(k[..., :dim]), stored(v))
        layout = "TND" if packed else "BSND"
        result: torch.Tensor = torch_npu.npu_fusion_attention_v2(*parts, HEADS, layout, **options)[
            0
        ]
        # A sink that the call leaves out has to have a gradient all the same.
        return result.view(v.shape) + (0 if sunk else s.sum().to(result.dtype) * 0)

    def reference(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, s: torch.Tensor
    ) -> torch.Tensor:
        weights = weights_with_sink(scores_of(q, k, 0.1), s if sunk else None)
        return torch.einsum("bnsk,bknd->bsnd", weights, v) + (0 if sunk else s.sum() * 0)

    compare(conformance, device, reference, query, key, value, sink)


def dropped_weights(packed: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights of the keys as dropout left them, the weights without it, and the values' gradient.

    Values that are a unit matrix make the output the weights themselves.
    """
    torch_npu.npu.manual_seed(5)
    rows = 32
    query = random(2, rows, 1, rows, seed=0, dtype=torch.float32)
    value = torch.eye(rows).expand(2, rows, rows).unsqueeze(2)
    layout = "TND" if packed else "BSND"
    options: dict[str, Any] = {}
    if packed:
        options = {"actual_seq_qlen": [rows, 2 * rows], "actual_seq_kvlen": [rows, 2 * rows]}

    def stored(values: torch.Tensor) -> torch.Tensor:
        return (values.flatten(0, 1) if packed else values).contiguous().to("npu")

    leaf = stored(value).requires_grad_()
    q = stored(query)
    output = torch_npu.npu_fusion_attention(
        q, q, leaf, 1, layout, scale=0.02, keep_prob=0.5, **options
    )[0]
    (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
    weights = scores_of(query, query, 0.02).softmax(-1)[:, 0]
    return output.cpu().view(2, rows, rows), weights, gradient.cpu().view(2, rows, rows)


@pytest.mark.parametrize("packed", [False, True])
def test_dropout_keeps_weights_in_the_gradient_that_it_kept_in_the_output(packed: bool) -> None:
    output, weights, gradient = dropped_weights(packed)
    kept = output != 0
    share = kept.double().mean().item()
    assert abs(share - 0.5) < 5 * 0.5 / kept.numel() ** 0.5
    assert torch.allclose(output.double(), torch.where(kept, weights / 0.5, 0.0), rtol=1e-4)
    # d(sum of outputs) / d(value of key k) is the sum of the kept weights of k over the queries.
    column = output.double().sum(1)
    assert torch.allclose(gradient.double(), column.unsqueeze(2).expand_as(gradient), rtol=1e-4)


def test_gradient_of_a_mask_that_is_too_small_is_refused() -> None:
    x = random(1, 16, 1, DIM, seed=0, dtype=torch.float16).to("npu").requires_grad_()
    with pytest.raises(RuntimeError, match="argument 'dropMask': expected at least 256 bits"):
        torch_npu.npu_fusion_attention(
            x,
            x,
            x,
            1,
            "BSND",
            keep_prob=0.5,
            dropout_mask=torch.zeros(8, dtype=torch.uint8).to("npu"),
        )
