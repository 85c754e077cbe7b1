"""Tensors in the NZ format: made by torch_npu's cast, read by operators, and turned back."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
import torch_npu

from operators.operator_call import call_operator

NZ, ND = 29, 2


pytestmark = pytest.mark.usefixtures("internal_formats")


def random(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.mul(50 if dtype == torch.int8 else 1).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.float32])
@pytest.mark.parametrize("shape", [(16, 32), (40, 70), (3, 33, 17), (1, 1)])
def test_cast_there_and_back_keeps_the_values(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = random(*shape, seed=0, dtype=dtype)
    nz = torch_npu.npu_format_cast(x.to("npu"), NZ)
    assert torch_npu.get_npu_format(nz) == NZ
    assert torch.equal(torch_npu.npu_format_cast(nz, ND).cpu(), x)
    assert torch.equal(nz.cpu(), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_product_reads_a_matrix_in_nz(
    conformance: Any, dtype: torch.dtype, transposed: bool
) -> None:
    x = random(5, 48, seed=0, dtype=dtype)
    weight = random(*((40, 48) if transposed else (48, 40)), seed=1, dtype=dtype)
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    result = torch.mm(x.to("npu"), nz.t() if transposed else nz).cpu()
    own = weight.T if transposed else weight
    bound = x.double().abs() @ own.double().abs()
    conformance.close(result, x.double() @ own.double(), ulps=48, magnitude=bound)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_product_with_a_bias_reads_a_matrix_in_nz(conformance: Any, dtype: torch.dtype) -> None:
    x, weight = random(5, 48, seed=0, dtype=dtype), random(40, 48, seed=1, dtype=dtype)
    bias = random(40, seed=2, dtype=dtype)
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    result = torch.nn.functional.linear(x.to("npu"), nz, bias.to("npu")).cpu()
    reference = x.double() @ weight.double().T + bias.double()
    bound = x.double().abs() @ weight.double().abs().T + bias.double().abs()
    conformance.close(result, reference, ulps=50, magnitude=bound)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_transposed_product_of_a_batch_reads_matrices_in_nz(
    conformance: Any, dtype: torch.dtype
) -> None:
    x, weight = random(5, 3, 48, seed=0, dtype=dtype), random(3, 48, 32, seed=1, dtype=dtype)
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    result = torch_npu.npu_transpose_batchmatmul(
        x.to("npu"), nz, perm_x1=[1, 0, 2], perm_x2=[0, 1, 2], perm_y=[1, 0, 2]
    )
    left = x.double().transpose(0, 1)
    reference = (left @ weight.double()).transpose(0, 1)
    bound = (left.abs() @ weight.double().abs()).transpose(0, 1)
    conformance.close(result.cpu(), reference, ulps=48, magnitude=bound)


def test_quantised_product_reads_a_matrix_in_nz() -> None:
    x, weight = random(4, 64, seed=0, dtype=torch.int8), random(64, 96, seed=1, dtype=torch.int8)
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    scale = torch.ones(96).to("npu")
    own = torch_npu.npu_quant_matmul(x.to("npu"), nz, scale, output_dtype=torch.bfloat16).cpu()
    expected = (x.double() @ weight.double()).bfloat16()
    assert torch.equal(own, expected)


def test_grouped_product_reads_matrices_in_nz() -> None:
    x, weight = random(6, 32, seed=0, dtype=torch.int8), random(2, 32, 64, seed=1, dtype=torch.int8)
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    result = torch_npu.npu_grouped_matmul(
        [x.to("npu")],
        [nz],
        group_list=torch.tensor([2, 6]).to("npu"),
        split_item=3,
        group_type=0,
        output_dtype=torch.int32,
    )[0].cpu()
    expected = torch.cat([x[:2].int() @ weight[0].int(), x[2:].int() @ weight[1].int()])
    assert torch.equal(result, expected)


def test_grouped_swiglu_quant_reads_matrices_in_nz() -> None:
    x, weight = random(6, 32, seed=0, dtype=torch.int8), random(2, 32, 64, seed=1, dtype=torch.int8)
    plain, rows = weight.to("npu"), x.to("npu")
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    scale, own = torch.full((2, 64), 1e-4).to("npu"), torch.arange(1.0, 7.0).to("npu")
    ends = torch.tensor([2, 6]).to("npu")
    swiglu, first = (
        torch_npu.npu_grouped_matmul_swiglu_quant_v2,
        torch_npu.npu_grouped_matmul_swiglu_quant,
    )
    # What the plain matrices give is compared with float64 among the grouped products.
    expected = swiglu(rows, [plain], [scale], own, ends)
    assert expected[0].ne(0).any()
    for results in (swiglu(rows, [nz], [scale], own, ends), first(rows, nz, ends, scale, own)):
        for result, reference in zip(results[:2], expected, strict=True):
            assert torch.equal(result.cpu(), reference.cpu())


def test_copies_of_a_tensor_in_nz_keep_its_values() -> None:
    x = random(40, 70, seed=0, dtype=torch.float16)
    nz = torch_npu.npu_format_cast(x.to("npu"), NZ)
    assert torch.equal(nz.clone().cpu(), x)
    other = torch_npu.npu_format_cast(torch.zeros_like(x).to("npu"), NZ)
    other.copy_(x.to("npu"))
    assert torch.equal(other.cpu(), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batched_product_of_another_version_reads_matrices_in_nz(dtype: torch.dtype) -> None:
    x, weight = (random(2, *shape, seed=5, dtype=dtype).to("npu") for shape in ((5, 32), (32, 48)))
    out = torch.empty(2, 5, 48, dtype=dtype, device="npu")
    blocks = torch_npu.npu_format_cast(weight, NZ)
    call_operator("aclnnBatchMatMulWeightNz", x, blocks, out, ctypes.c_int8(0))
    assert torch.equal(out.cpu(), torch.bmm(x, weight).cpu())
