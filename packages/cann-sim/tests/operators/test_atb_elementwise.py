"""Rotary embedding, quantisation, accumulating products and groups of experts of ATB."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_rotary_embedding_turns_queries_and_keys_in_place(
    conformance: Any, dtype: torch.dtype
) -> None:
    head, tokens = 8, 5
    # torch_npu keeps the first cache that it was ever given, so that all tests share one.
    angles = torch.outer(torch.arange(16.0), 100 ** (-torch.arange(0, head, 2) / head))
    cache = torch.cat([angles.cos(), angles.sin()], -1)
    positions = torch.tensor([0, 3, 15, 7, 7])
    query, key = random(tokens, 32, seed=1, dtype=dtype), random(tokens, 16, seed=2, dtype=dtype)
    for neox in (True, False):
        turned = query.to("npu"), key.to("npu")
        torch_npu._npu_rotary_embedding(positions.to("npu"), *turned, head, cache.to("npu"), neox)
        cos, sin = (t[positions].double().unsqueeze(1) for t in cache.chunk(2, -1))
        for rows, result in zip((query, key), turned, strict=True):
            heads = rows.double().view(tokens, -1, head)
            first, second = heads.chunk(2, -1) if neox else (heads[..., ::2], heads[..., 1::2])
            parts = [first * cos - second * sin, second * cos + first * sin]
            expected = torch.cat(parts, -1) if neox else torch.stack(parts, -1).flatten(-2)
            close = conformance.close
            close(result.cpu(), expected.view_as(rows), magnitude=heads.abs().max() * 2)


def test_captured_rotary_embedding_needs_no_lengths_at_its_replay(npu: Any) -> None:
    # torch_npu keeps one tensor with the number of tokens, and frees it at the next other number.
    angles = torch.outer(torch.arange(16.0), 100 ** (-torch.arange(0, 8, 2) / 8))
    cache = torch.cat([angles.cos(), angles.sin()], -1).to("npu")

    def turn(rows: torch.Tensor, positions: torch.Tensor) -> None:
        torch_npu._npu_rotary_embedding(positions, rows, rows.clone(), 8, cache, False)

    rows, positions = torch.ones(3, 16).half().to("npu"), torch.arange(3).to("npu")
    expected = rows.clone()
    turn(expected, positions)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        turn(rows, positions)
    turn(torch.ones(5, 16).half().to("npu"), torch.arange(5).to("npu"))
    others = [torch.full((128,), -1, dtype=torch.int32).to("npu") for _ in range(64)]
    graph.replay()
    npu.synchronize()
    assert torch.equal(rows.cpu(), expected.cpu())
    assert len(others) == 64


@pytest.mark.parametrize("dtype", HALVES)
def test_quantisation_divides_by_the_scale_of_each_channel(
    conformance: Any, dtype: torch.dtype
) -> None:
    x = random(4, 3, 8, seed=1, dtype=dtype) * 20
    scale = (random(3, 8, seed=2, dtype=dtype).abs() + 0.1).to(dtype)
    offset = torch.arange(24, dtype=torch.int8).view(3, 8) - 12
    y = torch.zeros(4, 3, 8, dtype=torch.int8).to("npu")
    torch_npu._npu_quantize_per_tensor(x.to("npu"), scale.to("npu"), offset.to("npu"), y)
    conformance.quantized(y.cpu(), x.double() / scale.double() + offset.double())


def test_quantisation_with_one_scale_needs_no_offset(conformance: Any) -> None:
    x, y = random(4, 8, seed=1, dtype=torch.float16), torch.zeros(4, 8, dtype=torch.int8).to("npu")
    none, scale = torch.zeros(0, dtype=torch.int8), torch.tensor([0.05]).half()
    torch_npu._npu_quantize_per_tensor(x.to("npu"), scale.to("npu"), none.to("npu"), y)
    conformance.quantized(y.cpu(), x.double() / scale.double())


@pytest.mark.parametrize("dtype", HALVES)
def test_norm_is_quantised_with_one_scale(conformance: Any, dtype: torch.dtype) -> None:
    x, gamma, beta = (
        random(*s, seed=i, dtype=dtype) for i, s in enumerate([(5, 16), (16,), (16,)])
    )
    scale, offset = torch.tensor([0.03], dtype=dtype), torch.tensor([5], dtype=torch.int8)
    output = torch.zeros(5, 16, dtype=torch.int8).to("npu")
    torch_npu._npu_quant_rms_norm(
        *(t.to("npu") for t in (x, gamma, beta, scale, offset)), output, 1e-5
    )
    wide = x.double()
    norm = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma.double()
    conformance.quantized(output.cpu(), (norm + beta.double()) / scale.double() + 5)


@pytest.mark.parametrize("dtype", HALVES)
def test_product_is_added_to_its_float32_output(conformance: Any, dtype: torch.dtype) -> None:
    x, weight = random(7, 5, seed=1, dtype=dtype), random(7, 6, seed=2, dtype=dtype)
    start = random(5, 6, seed=3, dtype=torch.float32)
    total = start.to("npu")
    torch_npu._npu_matmul_add_fp32(x.to("npu"), weight.to("npu"), total)
    torch_npu._npu_matmul_add_fp32(x.to("npu"), weight.to("npu"), total)
    product = x.double().T @ weight.double()
    conformance.close(
        total.cpu(),
        start.double() + 2 * product,
        magnitude=x.double().T.abs() @ weight.double().abs(),
    )


def kept_groups(scores: torch.Tensor, groups: int, kept: int, counted: int) -> torch.Tensor:
    """Return True for the experts of the groups with the largest sums."""
    result = torch.zeros(scores.shape, dtype=torch.bool)
    size = scores.shape[1] // groups
    for token, row in enumerate(scores.tolist()):
        sums = [sum(sorted(row[g * size : (g + 1) * size])[-counted:]) for g in range(groups)]
        for group in sorted(range(groups), key=lambda g: -sums[g])[:kept]:
            result[token, group * size : (group + 1) * size] = True
    return result


@settings(max_examples=30)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5)),
    kept=st.integers(1, 5),
    counted=st.integers(1, 5),
    dtype=st.sampled_from(HALVES),
    seed=st.integers(0, 99),
)
def test_groups_beyond_the_best_become_zero(
    shape: tuple[int, int, int], kept: int, counted: int, dtype: torch.dtype, seed: int
) -> None:
    tokens, groups, size = shape
    kept, counted = min(kept, groups), min(counted, size)
    scores = random(tokens, groups * size, seed=seed, dtype=dtype)
    result = scores.to("npu")
    torch_npu._npu_group_topk(result, k=kept, group_num=groups, n=counted)
    keeps = kept_groups(scores.double(), groups, kept, counted)
    assert torch.equal(result.cpu(), scores * keeps)


@pytest.mark.parametrize("normed", [False, True])
def test_chosen_experts_have_the_largest_biased_scores(conformance: Any, normed: bool) -> None:
    x, bias = random(6, 16, seed=1, dtype=torch.float32), random(16, seed=2, dtype=torch.float32)
    weights, indices = torch_npu.atb.npu_fused_add_topk_div(
        x.to("npu"), bias.to("npu"), group_num=4, group_topk=2, n=2, k=3, is_norm=normed, scale=2.5
    )
    scores = x.double().sigmoid()
    biased = scores + bias.double()
    chosen = biased.masked_fill(~kept_groups(biased, 4, 2, 2), -torch.inf).topk(3).indices
    assert torch.equal(indices.cpu(), chosen.int())
    expected = scores.gather(1, chosen)
    if normed:
        expected = expected / expected.sum(1, keepdim=True)
    conformance.close(weights.cpu(), expected * 2.5, ulps=16)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("_npu_group_topk", {"k": 3, "group_num": 2}, "'k': expected 1 to 2"),
        ("_npu_group_topk", {"k": 1, "group_num": 3}, "'group_num': expected a divisor"),
        ("_npu_group_topk", {"k": 1, "group_num": 2, "n": 9}, "'n': expected 1 to 4"),
    ],
)
def test_wrong_groups_are_refused(
    npu: Any, name: str, arguments: dict[str, int], message: str
) -> None:
    with npu.stream(npu.SyncLaunchStream()), pytest.raises(RuntimeError, match=message):
        getattr(torch_npu, name)(torch.zeros(2, 8).half().to("npu"), **arguments)


def test_wrong_operands_are_refused(npu: Any) -> None:
    x, total = torch.zeros(7, 5).half().to("npu"), torch.zeros(5, 5).to("npu")
    with npu.stream(npu.SyncLaunchStream()):
        with pytest.raises(RuntimeError, match="'weight': expected 7 values to sum"):
            torch_npu._npu_matmul_add_fp32(x, x[:6], total)
        with pytest.raises(RuntimeError, match=r"'C': expected .*found float16"):
            torch_npu._npu_matmul_add_fp32(x, x, total.half())
        with pytest.raises(RuntimeError, match=r"'zero_point': expected .*int8"):
            torch_npu._npu_quantize_per_tensor(x, x[0], x[0], x.to(torch.int8))


def test_operation_that_is_not_simulated_fails_with_its_name(npu: Any) -> None:
    half = torch.zeros(1, 8).half().to("npu")
    with (
        npu.stream(npu.SyncLaunchStream()),
        pytest.raises(RuntimeError, match="AtbMLAPreprocess"),
    ):
        torch_npu.atb.npu_mla_preprocess(*[half] * 13, half.view(1, 1, 1, 8), half, half)
