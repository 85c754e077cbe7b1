"""Arithmetic and comparisons of the older interface, which tensors in internal formats use."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

if TYPE_CHECKING:
    from collections.abc import Callable

NZ = 29
SHAPE = (20, 33)  # of no whole blocks

pytestmark = pytest.mark.usefixtures("internal_formats")


def values(seed: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*SHAPE, generator=generator).add(0.5).to(dtype)


def in_nz(tensor: torch.Tensor) -> torch.Tensor:
    cast: torch.Tensor = torch_npu.npu_format_cast(tensor.to("npu"), NZ)
    return cast


BINARY: tuple[Callable[..., Any], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    torch.maximum,
    torch.minimum,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
UNARY: tuple[Callable[..., Any], ...] = (
    torch.abs,
    torch.exp,
    torch.neg,
    torch.relu,
    torch.rsqrt,
    torch.sqrt,
    torch.square,
    torch.zeros_like,
    torch.isnan,
    torch.Tensor.float,
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("function", BINARY)
def test_operands_in_nz_and_plain_memory_match_by_position(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    left, right = values(1, dtype), values(2, dtype)
    right[3] = left[3]
    expected = function(left, right)
    for x1, x2 in ((in_nz(left), in_nz(right)), (in_nz(left), right.to("npu"))):
        torch.testing.assert_close(function(x1, x2).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("function", [f for f in BINARY if f not in (torch.maximum, torch.minimum)])
def test_operand_in_nz_with_a_number(function: Callable[..., Any]) -> None:
    left = values(1, torch.float32)
    left[3] = 0.75
    actual = function(in_nz(left), 0.75).float().cpu()  # the device casts no booleans out of NZ
    torch.testing.assert_close(actual, function(left, 0.75).float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("function", UNARY)
def test_function_of_values_in_nz_keeps_their_places(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    tensor = values(1, dtype).sub(0.75 if function in (torch.abs, torch.relu) else 0)
    torch.testing.assert_close(function(in_nz(tensor)).cpu(), function(tensor))
