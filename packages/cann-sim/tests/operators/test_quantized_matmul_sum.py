"""Sums over a batch of products of int8 matrices, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers
from operators.operator_call import call_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

NZ, BATCH, INNER = 29, 3, 40


@pytest.fixture(autouse=True)
def _internal_formats() -> Iterator[None]:
    torch_npu.npu.config.allow_internal_format = True
    yield
    torch_npu.npu.config.allow_internal_format = False


def inputs(rows: int, columns: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [
        integers(BATCH, rows, INNER, seed=1),
        integers(BATCH, INNER, columns, seed=2),
        torch.rand(BATCH, rows, generator=generator) / 100,
        torch.randn(columns, generator=generator).bfloat16(),
    ]


def run(x1: torch.Tensor, x2: torch.Tensor, x1_scale: torch.Tensor, x2_scale: torch.Tensor) -> Any:
    matrices = torch_npu.npu_format_cast(x2.to("npu"), NZ)
    return torch_npu.npu_quant_matmul_reduce_sum(
        x1.to("npu"), matrices, x1_scale=x1_scale.to("npu"), x2_scale=x2_scale.to("npu")
    )


@pytest.mark.parametrize(("rows", "columns"), [(5, 64), (1, 1), (17, 33)])
def test_products_are_scaled_and_added_up(conformance: Any, rows: int, columns: int) -> None:
    x1, x2, x1_scale, x2_scale = inputs(rows, columns)
    products = x1.double() @ x2.double() * x1_scale.double().unsqueeze(-1) * x2_scale.double()
    result = run(x1, x2, x1_scale, x2_scale).cpu()
    conformance.close(result, products.sum(0), magnitude=products.abs().sum(0))


def test_empty_tensors_mean_missing_arguments() -> None:
    given = inputs(5, 64)
    expected = run(*given)
    x1, x2, x1_scale, x2_scale = (tensor.to("npu") for tensor in given)
    nothing = [torch.empty(0, device="npu")] * 5
    out = torch.empty_like(expected)
    call_operator(
        "aclnnQuantMatmulReduceSumWeightNz",
        *(x1, torch_npu.npu_format_cast(x2, NZ), x1_scale, x2_scale, *nothing),
        *(False, False, 0, (0,), False, out),
    )
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (0, torch.zeros(BATCH, 5, INNER).half(), "'x1'.*int8"),
        (3, torch.zeros(64), "'x2Scale'.*bfloat16"),
        (2, torch.zeros(BATCH, 5).half(), "'x1Scale'.*float32"),
    ],
)
def test_what_the_device_refuses_is_refused(
    position: int, value: torch.Tensor, reason: str, capfd: Any
) -> None:
    del capfd
    given = inputs(5, 64)
    given[position] = value
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        run(*given)
