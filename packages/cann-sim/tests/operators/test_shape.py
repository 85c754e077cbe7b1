"""Joining, repeating and rearranging tensors."""

from __future__ import annotations

import pytest
import torch

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.bool]


def numbered(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape).remainder(100).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_joining_is_exact(dtype: torch.dtype) -> None:
    a, b = numbered(3, 4, dtype=dtype), numbered(3, 2, dtype=dtype)
    device = [a.to("npu"), b.to("npu")]
    assert torch.equal(torch.cat(device, 1).cpu(), torch.cat([a, b], 1))
    assert torch.equal(torch.cat([d.t() for d in device]).cpu(), torch.cat([a.t(), b.t()]))
    with_empty = [torch.empty(0, dtype=dtype).to("npu"), device[0]]
    assert torch.equal(torch.cat(with_empty).cpu(), a)
    for dim in (0, 1, -1):
        stacked = torch.stack([device[0], device[0] * 1], dim).cpu()
        assert torch.equal(stacked, torch.stack([a, a], dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parting_is_exact(dtype: torch.dtype) -> None:
    values = numbered(3, 10, dtype=dtype)
    device = values.to("npu")
    for part, expected in zip(
        torch.split(device, [3, 5, 2], 1), torch.split(values, [3, 5, 2], 1), strict=True
    ):
        assert torch.equal(part.contiguous().cpu(), expected)
    for part, expected in zip(device.chunk(2, -1), values.chunk(2, -1), strict=True):
        assert torch.equal(part.contiguous().cpu(), expected)
    assert torch.equal(device.unbind(0)[1].cpu(), values[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeating_is_exact(dtype: torch.dtype) -> None:
    values = numbered(2, 3, dtype=dtype)
    device = values.to("npu")
    assert torch.equal(device.repeat(2, 1, 3).cpu(), values.repeat(2, 1, 3))
    assert torch.equal(device[:, :1].expand(2, 4).contiguous().cpu(), values[:, :1].expand(2, 4))
    assert torch.equal(device.repeat_interleave(2).cpu(), values.repeat_interleave(2))
    assert torch.equal(device.repeat_interleave(3, 1).cpu(), values.repeat_interleave(3, 1))
    counts = torch.tensor([2, 0, 1])
    assert torch.equal(
        device.repeat_interleave(counts.to("npu"), 1).cpu(), values.repeat_interleave(counts, 1)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_rearranging_is_exact(dtype: torch.dtype) -> None:
    values = numbered(2, 3, 4, dtype=dtype)
    device = values.to("npu")
    assert torch.equal(device.flip(0, 2).cpu(), values.flip(0, 2))
    assert torch.equal(device.roll(1, 1).cpu(), values.roll(1, 1))
    if dtype != torch.bool:
        padded = torch.nn.functional.pad(device, (1, 2, 0, 1), value=3)
        assert torch.equal(padded.cpu(), torch.nn.functional.pad(values, (1, 2, 0, 1), value=3))


def test_parts_are_copied_to_given_tensors() -> None:
    values = torch.arange(12.0).view(2, 6)
    parts = [torch.empty(2, 2, device="npu"), torch.empty(2, 4, device="npu")]
    torch.split_with_sizes_copy(values.to("npu"), [2, 4], 1, out=parts)
    for part, expected in zip(parts, torch.split(values, [2, 4], 1), strict=True):
        assert torch.equal(part.cpu(), expected)


def test_flat_repeats_by_count() -> None:
    values, counts = torch.arange(4.0), torch.tensor([2, 0, 1, 3])
    result = torch.repeat_interleave(values.to("npu"), counts.to("npu")).cpu()
    assert torch.equal(result, torch.repeat_interleave(values, counts))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_many_long_parts_are_copied_at_once(dtype: torch.dtype) -> None:
    # torch_npu calls another operator if more than 32 parts have more than 65536 columns.
    sizes = [*range(1950, 1983), 1989]
    values = torch.arange(2 * sum(sizes)).remainder(253).view(2, -1).to(dtype)
    parts = [torch.empty(2, size, dtype=dtype, device="npu") for size in sizes]
    torch.split_with_sizes_copy(values.to("npu"), sizes, 1, out=parts)
    for part, expected in zip(parts, torch.split(values, sizes, 1), strict=True):
        assert torch.equal(part.cpu(), expected)
