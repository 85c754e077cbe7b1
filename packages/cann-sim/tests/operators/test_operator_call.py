"""Operators that this torch_npu on this device leaves to other versions of either.

Each is called by its C interface and compared with the operator that torch_npu calls in its place,
which other tests compare with float64.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
import torch_npu
from torch.nn import functional

from operators.operator_call import call_operator

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
ATEN: Any = torch.ops.aten


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to("npu")


def equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize("dtype", FLOATS)
def test_log_sigmoid_without_a_buffer_equals_the_one_with_it(dtype: torch.dtype) -> None:
    x = random(3, 5, dtype=dtype).t()
    out = torch.empty(5, 3, dtype=dtype, device="npu")
    call_operator("aclnnLogSigmoid", x, out)
    assert equal(out, functional.logsigmoid(x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_first_hardswish_gradient_equals_the_second_within_its_bounds(dtype: torch.dtype) -> None:
    grad, x = random(40, dtype=dtype), random(40, seed=1, dtype=dtype) * 2
    out = torch.empty_like(x)
    call_operator("aclnnHardswishBackward", grad, x, out)
    assert equal(out, ATEN.hardswish_backward(grad, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_index_fill_of_host_indices_equals_that_of_a_tensor(dtype: torch.dtype) -> None:
    x, out = random(4, 5, dtype=dtype), torch.empty(4, 5, dtype=dtype, device="npu")
    expected = torch.index_fill(x, 1, torch.tensor([3, 0]).to("npu"), 2.5)
    call_operator("aclnnIndexFillTensor", x, 1, (3, 0), ctypes.c_float(2.5), out)
    assert equal(out, expected)
    call_operator("aclnnInplaceIndexFillTensor", x, 1, (3, 0), ctypes.c_float(2.5))
    assert equal(x, expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_random_integers_of_the_full_range_follow_seed_and_offset(dtype: torch.dtype) -> None:
    drawn = [torch.zeros(20_000, dtype=dtype, device="npu") for _ in range(3)]
    call_operator("aclnnInplaceRandomWithoutFromTo", drawn[0], 7, 12)
    call_operator("aclnnInplaceRandomWithoutFromTo", drawn[1], 7, 16)
    seed, offset = torch.tensor([7]).to("npu"), torch.tensor([4]).to("npu")
    call_operator("aclnnInplaceRandomWithoutFromToTensor", drawn[2], seed, offset, 8)
    assert not equal(drawn[0], drawn[1])
    assert equal(drawn[0], drawn[2])
    largest = torch.iinfo(dtype).max
    halves = (drawn[0].cpu() > largest // 2).double().mean().item()
    assert abs(halves - 0.5) < 5 * 0.5 / 20_000**0.5
    assert drawn[0].cpu().min() >= 0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("number", "mode"), [(0, "half"), (1, "interleave")])
def test_first_rotations_equal_the_second(dtype: torch.dtype, number: int, mode: str) -> None:
    query, key = random(2, 3, 4, 128, dtype=dtype), random(2, 3, 1, 128, seed=1, dtype=dtype)
    cos, sin = (random(2, 3, 1, 128, seed=seed, dtype=dtype) for seed in (2, 3))
    out = torch.empty_like(query)
    call_operator("aclnnRotaryPositionEmbedding", query, cos, sin, number, out)
    assert equal(out, torch_npu.npu_rotary_mul(query, cos, sin, mode))
    expected = torch_npu.npu_apply_rotary_pos_emb(query.clone(), key.clone(), cos, sin, "BSND")
    call_operator("aclnnApplyRotaryPosEmb", query, key, cos, sin, 1)
    assert equal(query, expected[0])
    assert equal(key, expected[1])
    rows, cache = random(6, 256, dtype=dtype), random(50, 64, seed=5, dtype=dtype)
    positions = torch.tensor([0, 3, 49, 3, 7, 1]).to("npu")
    results = [torch.empty_like(rows) for _ in range(2)]
    call_operator(
        "aclnnRopeWithSinCosCache",
        *(positions, rows, rows * 2, cache, (0, 0, 0), 64, mode == "half"),
        *results,
    )
    turned = torch_npu.npu_mrope(
        positions, rows, rows * 2, cache, 64, mrope_section=[0, 0, 0], rotary_mode=mode
    )
    for result, reference in zip(results, turned, strict=True):
        assert equal(result, reference)


def test_first_bilinear_gradient_equals_the_second() -> None:
    grad, out = random(2, 3, 7, 3), torch.empty(2, 3, 5, 6, device="npu")
    call_operator(
        "aclnnUpsampleBilinear2dBackward", grad, (7, 3), (2, 3, 5, 6), False, 0.0, 0.0, out
    )
    expected = ATEN.upsample_bilinear2d_backward(grad, [7, 3], [2, 3, 5, 6], False)
    assert equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_other_versions_equal_those_of_this(dtype: torch.dtype) -> None:
    x, weight = random(2, 5, 32, dtype=dtype), random(2, 32, 48, seed=1, dtype=dtype)
    rows, ends = x.view(10, 32), torch.tensor([4, 10]).to("npu")
    result = torch.empty(10, 48, dtype=dtype, device="npu")
    call_operator(
        "aclnnGroupedMatmulV4",
        *([rows], [weight], *[None] * 6, ends, None, None, None),
        *(3, 0, 0, 0, [result], None, None),
    )
    expected = torch_npu.npu_grouped_matmul(
        [rows], [weight], group_list=ends, split_item=3, group_type=0
    )
    assert equal(result, expected[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_second_expert_routing_equals_the_later_ones(dtype: torch.dtype) -> None:
    x, experts = random(5, 16, dtype=dtype), torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1], [2, 0]])
    chosen = experts.int().to("npu")
    rows = torch.empty(10, 16, dtype=dtype, device="npu")
    places, counts, before = (
        torch.empty(size, dtype=torch.int32, device="npu") for size in (10, 3, 3)
    )
    call_operator(
        "aclnnMoeInitRoutingV2",
        *(x, chosen, 10, 0, 3, 0, 2, False),
        *(rows, places, counts, before),
    )
    order = torch.argsort(experts.flatten(), stable=True)
    assert equal(rows, x.cpu()[order // 2])
    assert equal(places, torch.argsort(order).int())
    assert counts.cpu().tolist() == [4, 3, 3]
    scales, out = random(5, 2, seed=1, dtype=dtype), torch.empty_like(x)
    columns = places.view(5, 2).t().flatten()
    call_operator(
        "aclnnMoeFinalizeRoutingV2", *(rows, columns, None, None, None, scales, None, 0, out)
    )
    expected = torch_npu.npu_moe_finalize_routing(rows, None, None, None, scales, columns, None)
    assert equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_second_fused_attention_equals_the_later_ones(dtype: torch.dtype) -> None:
    query = random(2, 3, 4, 32, dtype=dtype)
    key, value = (random(2, 7, 2, 32, seed=seed, dtype=dtype) for seed in (1, 2))
    out = torch.empty_like(query)
    far = 2147483647
    call_operator(
        "aclnnFusedInferAttentionScoreV2",
        *(query, [key], [value], None, None, (3, 2), (7, 4)),
        *[None] * 17,
        *(4, 0.2, far, far, b"BSND", 2, 0, 0, 0, 0, False, 0, 0),
        *(out, None),
    )
    expected, _ = torch_npu.npu_fused_infer_attention_score(
        query,
        key,
        value,
        actual_seq_lengths=[3, 2],
        actual_seq_lengths_kv=[7, 4],
        num_heads=4,
        num_key_value_heads=2,
        input_layout="BSND",
        scale=0.2,
    )
    assert equal(out, expected)
