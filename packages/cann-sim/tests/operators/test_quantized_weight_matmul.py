"""Products with a quantised right matrix, against float64."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import random
from operators.operator_call import call_operator

HALVES = [torch.bfloat16, torch.float16]


@given(
    rows=st.integers(1, 5),
    inner=st.sampled_from([64, 128]),
    columns=st.sampled_from([8, 64]),
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([0, 32]),
    dtype=st.sampled_from(HALVES),
    shifted=st.booleans(),
    transposed=st.booleans(),
    biased=st.booleans(),
    precise=st.sampled_from([0, 1]),
)
@settings(max_examples=30)
def test_weight_quant_batchmatmul_reads_its_matrix(
    conformance: Any,
    rows: int,
    inner: int,
    columns: int,
    bits: int,
    group: int,
    dtype: torch.dtype,
    shifted: bool,
    transposed: bool,
    biased: bool,
    precise: int,
) -> None:
    largest = 7 if bits == 4 else 127
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-largest, largest + 1, (inner, columns), generator=generator)
    x = random(rows, inner, seed=1, dtype=dtype)
    groups = inner // group if group else 1
    scale = random(groups, columns, seed=2, dtype=dtype).abs().mul(0.05).to(dtype)
    offset = random(groups, columns, seed=3, dtype=dtype)
    bias = random(columns, seed=4, dtype=torch.float16 if dtype == torch.float16 else torch.float32)
    stored = weight.T.contiguous() if transposed else weight
    if bits == 4:
        device = torch_npu.npu_convert_weight_to_int4pack(stored.int().to("npu"))
    else:
        device = stored.to(torch.int8).to("npu")
    result = torch_npu.npu_weight_quant_batchmatmul(
        x.to("npu"),
        device.T if transposed else device,
        scale.to("npu"),
        offset.to("npu") if shifted else None,
        bias=bias.to("npu") if biased else None,
        antiquant_group_size=group,
        inner_precise=precise,
    ).cpu()
    spread = [t.float().repeat_interleave(inner // groups, 0) for t in (scale, offset)]
    wide = weight.float() + (spread[1] if shifted else 0)
    matrix = (wide * spread[0]).to(dtype).double()
    expected = x.double() @ matrix + (bias.double() if biased else 0)
    bound = x.double().abs() @ matrix.abs() + 4
    conformance.close(result, expected, ulps=inner, magnitude=bound)


def test_weight_quant_batchmatmul_quantises_its_result(conformance: Any) -> None:
    x = random(3, 64, seed=0, dtype=torch.float16)
    weight = torch.randint(-127, 128, (64, 16)).to(torch.int8)
    scale, steps = torch.full((16,), 0.01).half(), torch.full((16,), 8.0)
    result = torch_npu.npu_weight_quant_batchmatmul(
        x.to("npu"),
        weight.to("npu"),
        scale.to("npu"),
        quant_scale=steps.to("npu"),
        quant_offset=steps.to("npu"),
    ).cpu()
    matrix = (weight.float() * scale.float()).half().double()
    conformance.quantized(result, x.double() @ matrix * 8 + 8, slack=1e-3)


def test_int4_pack_puts_the_first_value_into_the_lowest_bits() -> None:
    values = torch.arange(-8, 8).view(2, 8).int()
    words = torch_npu.npu_convert_weight_to_int4pack(values.to("npu")).cpu()
    expected = [
        int.from_bytes(
            bytes((row[i] & 15) | ((row[i + 1] & 15) << 4) for i in range(0, 8, 2)),
            "little",
            signed=True,
        )
        for row in values.tolist()
    ]
    assert words.flatten().tolist() == expected


def test_weight_quant_batchmatmul_refuses_scales_of_another_dtype() -> None:
    x, weight = torch.ones(2, 64).half().to("npu"), torch.ones(64, 8).to(torch.int8).to("npu")
    with pytest.raises(RuntimeError, match="argument 'antiquantScale'"):
        torch_npu.npu_weight_quant_batchmatmul(x, weight, torch.ones(8).to("npu"))


@pytest.mark.parametrize("pieces", [1, 2])
def test_transpose_batchmatmul_permutes_factors_and_result(conformance: Any, pieces: int) -> None:
    left, right = (random(*s, seed=1, dtype=torch.float16) for s in ((5, 4, 32), (4, 32, 8)))
    result = torch_npu.npu_transpose_batchmatmul(
        left.to("npu"),
        right.to("npu"),
        perm_x1=[1, 0, 2],
        perm_x2=[0, 1, 2],
        perm_y=[1, 0, 2],
        batch_split_factor=pieces,
    ).cpu()
    expected = (left.double().transpose(0, 1) @ right.double()).transpose(0, 1)
    if pieces != 1:
        expected = expected.reshape(5, pieces, -1).transpose(0, 1)
    conformance.close(result, expected, ulps=64, magnitude=torch.tensor(40.0).double())


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_transpose_batchmatmul_rounds_to_int8_with_a_scale(
    conformance: Any, dtype: torch.dtype
) -> None:
    left, right = (random(*s, seed=1, dtype=torch.float16) for s in ((5, 4, 32), (4, 32, 8)))
    scale = torch_npu.npu_trans_quant_param(torch.full((32,), 16.0).to("npu"))
    out = torch.empty(5, 1, 32, dtype=dtype, device="npu")
    call_operator(
        "aclnnTransposeBatchMatMul",
        *(left.to("npu"), right.to("npu"), None, scale, (1, 0, 2), (0, 1, 2), (1, 0, 2)),
        *(ctypes.c_int8(0), 1, out),
    )
    expected = (left.double().transpose(0, 1) @ right.double()).transpose(0, 1).reshape(5, 1, 32)
    assert expected.mul(16).abs().gt(128).any()
    conformance.quantized(out.cpu().to(torch.int8), expected * 16)
    assert torch.equal(out.cpu().to(torch.int8).to(dtype), out.cpu())


def test_transpose_batchmatmul_gives_the_dtype_of_its_factors_with_a_scale() -> None:
    left, right = (random(*s, seed=1, dtype=torch.float16) for s in ((5, 4, 32), (4, 32, 8)))
    scale = torch_npu.npu_trans_quant_param(torch.ones(32).to("npu"))
    result = torch_npu.npu_transpose_batchmatmul(
        left.to("npu"), right.to("npu"), scale=scale, perm_x1=[1, 0, 2]
    ).cpu()
    assert result.dtype == torch.float16
    assert result.shape == (5, 1, 32)
    assert torch.equal(result, result.round())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"perm_x1": [2, 1, 0]}, r"permX1.*found \[2, 1, 0\]"),
        ({"perm_x2": [1, 0, 2]}, r"permX2.*found \[1, 0, 2\]"),
        ({"perm_y": [0, 1, 2]}, r"permY.*found \[0, 1, 2\]"),
        ({"perm_x2": [0, 2, 1], "batch_split_factor": 2}, r"permX2.*pieces"),
        ({"perm_x1": [0, 1, 2], "perm_x2": [0, 2, 1]}, r"permX2.*permX1"),
    ],
)
def test_transpose_batchmatmul_refuses_permutations_the_device_refuses(
    changes: dict[str, Any], reason: str
) -> None:
    left, right = (random(4, 4, 4, seed=1, dtype=torch.float16).to("npu") for _ in range(2))
    given = {"perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2], **changes}
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_transpose_batchmatmul(left, right, **given)
