"""Copies between layouts, dtypes and devices."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch_npu

import cann_sim

REALS = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(REALS, REALS)))
def test_cast_of_representable_values_equals_reference(
    source: torch.dtype, target: torch.dtype
) -> None:
    values = torch.tensor([[0, 1, 2], [3, 100, 120]]).to(source)
    result = values.to("npu").to(target)
    assert result.dtype == target
    assert torch.equal(result.cpu(), values.to(target))
    strided = values.to("npu").t()[1:].to(target)
    assert torch.equal(strided.cpu(), values.t()[1:].to(target))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cast_to_half_rounds_to_nearest_even(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    values = torch.tensor([1 + eps / 2, 1 + 3 * eps / 2, 1 + eps * 0.51, -1 - eps / 2])
    expected = torch.tensor([1.0, 1 + 2 * eps, 1 + eps, -1.0])
    assert torch.equal(values.to("npu").to(dtype).float().cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_round_trip_keeps_every_layout(views: Any, dtype: torch.dtype) -> None:
    for view in views(torch.float32).values():
        values = view.to(dtype)
        assert torch.equal(values.to("npu").cpu(), values)
        assert torch.equal(values.to("npu").contiguous().cpu(), values)


def test_copy_into_a_strided_view_touches_nothing_else() -> None:
    target = torch.zeros(6, 8)
    device = target.to("npu")
    source = torch.arange(12.0).view(4, 3)
    device[1:5, 1:7:2].copy_(source.to("npu").half())
    target[1:5, 1:7:2] = source
    assert torch.equal(device.cpu(), target)


def test_copy_broadcasts_the_source() -> None:
    device = torch.zeros(3, 4).to("npu")
    device.copy_(torch.arange(4.0).to("npu"))
    assert torch.equal(device.cpu(), torch.arange(4.0).expand(3, 4))


def test_permuted_copy_is_contiguous() -> None:
    values = torch.arange(24).view(2, 3, 4)
    result = values.to("npu").permute(2, 0, 1).contiguous()
    assert result.is_contiguous()
    assert torch.equal(result.cpu(), values.permute(2, 0, 1))


def test_print_shows_the_values() -> None:
    text = repr(torch.tensor([1.5, 2.0]).to("npu"))
    assert "1.5000, 2.0000" in text
    assert "npu:0" in text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("target", [torch.float16, torch.float32, torch.int64])
def test_dtype_cast_equals_a_conversion(
    views: Any, dtype: torch.dtype, target: torch.dtype
) -> None:
    for view in views(dtype).values():
        launched = cann_sim.counters()
        result = torch_npu.npu_dtype_cast(view.to("npu"), target).cpu()
        assert torch.equal(result, view.to(target))
        # A copy of nothing does not wait for the launches in the task queue.
        torch_npu.npu.synchronize()
        assert (cann_sim.counters() - launched).launches_by_operator["aclnnCast"] == 1
