"""Comparisons and logic."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64]
COMPARISONS = [operator.eq, operator.ne, operator.ge, operator.gt, operator.le, operator.lt]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparison_with_tensor_and_scalar_is_exact(
    compare: Callable[..., torch.Tensor], dtype: torch.dtype
) -> None:
    a = torch.arange(-4, 4).view(2, 4).to(dtype)
    b = torch.tensor([[0], [1]]).to(dtype)
    assert torch.equal(compare(a.to("npu"), b.to("npu")).cpu(), compare(a, b))
    assert torch.equal(compare(a.to("npu").t(), 1).cpu(), compare(a.t(), 1))
    assert torch.equal(compare(a[:0].to("npu"), 1).cpu(), compare(a[:0], 1))


def test_comparison_with_nan_is_false() -> None:
    values = torch.tensor([float("nan"), 1.0]).to("npu")
    assert (values == values.clone()).tolist() == [False, True]
    assert (values < 2).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_logic_takes_any_dtype(dtype: torch.dtype) -> None:
    a = torch.tensor([0, 1, 0, 2]).to(dtype)
    b = torch.tensor([0, 0, 3, 4]).to(dtype)
    for function in (torch.logical_and, torch.logical_or, torch.logical_xor):
        assert torch.equal(function(a.to("npu"), b.to("npu")).cpu(), function(a, b))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32, torch.int64])
def test_bitwise_operation_is_exact(dtype: torch.dtype) -> None:
    a = torch.tensor([0, 1, 5, 7]).to(dtype)
    b = torch.tensor([1, 1, 3, 0]).to(dtype)
    for function in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor):
        assert torch.equal(function(a.to("npu"), b.to("npu")).cpu(), function(a, b))
        if dtype != torch.bool:
            assert torch.equal(function(a.to("npu"), 3).cpu(), function(a, 3))


def test_equal_compares_all_values() -> None:
    values = torch.arange(6.0).to("npu")
    assert torch.equal(values, values.clone())
    assert not torch.equal(values, values + 1)


def test_isclose_uses_both_tolerances() -> None:
    a, b = torch.tensor([1.0, 2.0, 1e-9]), torch.tensor([1.0001, 2.1, 0.0])
    expected = torch.isclose(a, b, rtol=1e-3, atol=1e-8)
    assert torch.equal(
        torch.isclose(a.to("npu"), b.to("npu"), rtol=1e-3, atol=1e-8).cpu(), expected
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_broadcasts(dtype: torch.dtype) -> None:
    condition = torch.tensor([[True], [False]])
    a, b = torch.arange(3).to(dtype), torch.arange(10, 16).view(2, 3).to(dtype)
    result = torch.where(condition.to("npu"), a.to("npu"), b.to("npu")).cpu()
    assert torch.equal(result, torch.where(condition, a, b))


@pytest.mark.parametrize("name", ["eq_", "ne_", "ge_", "gt_", "le_", "lt_"])
def test_inplace_comparison_keeps_the_dtype(name: str) -> None:
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])
    for other in (b, 2):
        device = getattr(a.to("npu"), name)(other.to("npu") if other is b else other)
        assert device.dtype == torch.float32
        assert torch.equal(device.cpu(), getattr(a.clone(), name)(other))


@pytest.mark.parametrize("name", ["logical_and_", "logical_or_", "logical_xor_"])
def test_inplace_logic_equals_reference(name: str) -> None:
    a, b = torch.tensor([0, 1, 0, 2]), torch.tensor([0, 0, 3, 4])
    assert torch.equal(getattr(a.to("npu"), name)(b.to("npu")).cpu(), getattr(a.clone(), name)(b))


@pytest.mark.parametrize("name", ["bitwise_and_", "bitwise_or_", "bitwise_xor_"])
def test_inplace_bitwise_equals_reference(name: str) -> None:
    a, b = torch.tensor([0, 1, 5, 7]), torch.tensor([1, 1, 3, 0])
    for other in (b, 6):
        device = getattr(a.to("npu"), name)(other.to("npu") if other is b else other)
        assert torch.equal(device.cpu(), getattr(a.clone(), name)(other))
