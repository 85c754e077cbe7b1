"""Casts between plain memory and internal formats: the memory itself, and the way back."""

from __future__ import annotations

import ctypes

import pytest
import torch
import torch_npu

ND, NC1HWC0, FRACTAL_Z, NZ, NDC1HWC0, FRACTAL_Z_3D = 2, 3, 4, 29, 32, 33
INT32 = 3  # aclDataType


pytestmark = pytest.mark.usefixtures("internal_formats")


def counted(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Values from 1, so that they differ from padding."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 97 + 1).view(shape).to(dtype)


def memory_of(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Memory of the device, which is the simulator's own."""
    torch_npu.npu.synchronize()
    size = torch.Size(shape).numel() * tensor.element_size()
    assert tensor.untyped_storage().nbytes() >= size
    raw = bytearray(ctypes.string_at(tensor.untyped_storage().data_ptr(), size))
    return torch.frombuffer(raw, dtype=tensor.dtype).view(shape)


def padded(values: torch.Tensor, dim: int, group: int) -> torch.Tensor:
    missing = -values.shape[dim] % group
    zeros = torch.zeros_like(values.narrow(dim, 0, 1)).repeat_interleave(missing, dim)
    return torch.cat([values, zeros], dim)


def split(values: torch.Tensor, dim: int, group: int) -> torch.Tensor:
    shape = list(values.shape)
    return values.reshape(*shape[:dim], shape[dim] // group, group, *shape[dim + 1 :])


def nz(values: torch.Tensor, width: int) -> torch.Tensor:
    rank = values.dim()
    whole = padded(padded(values, rank - 1, width), rank - 2, 16)
    blocks = split(split(whole, rank - 1, width), rank - 2, 16)  # rows, 16, columns, width
    return blocks.movedim(-2, -4).contiguous()


@pytest.mark.parametrize("shape", [(15, 17), (16, 32), (8, 16), (3, 15, 33), (2, 3, 5, 40)])
@pytest.mark.parametrize(
    ("dtype", "asked", "width"),
    [
        (torch.float16, None, 16),
        (torch.bfloat16, None, 16),
        (torch.float32, None, 16),
        (torch.int8, None, 32),
        (torch.int32, None, 16),
        pytest.param(
            torch.int32,
            INT32,
            8,
            marks=pytest.mark.absent_in_torch_npu(
                "2.10", reason="customize_dtype is not for this device"
            ),
        ),
    ],
)
def test_nz_blocks_are_as_documented_and_convert_back(
    shape: tuple[int, ...], dtype: torch.dtype, asked: int | None, width: int
) -> None:
    values = counted(*shape, dtype=dtype)
    cast = torch_npu.npu_format_cast(values.to("npu"), NZ, customize_dtype=asked)
    assert torch_npu.get_npu_format(cast) == NZ
    expected = nz(values, width)
    assert torch.equal(memory_of(cast, tuple(expected.shape)), expected)
    assert torch.equal(torch_npu.npu_format_cast(cast, ND).cpu(), values)
    assert torch.equal(cast.cpu(), values)


def test_strided_values_are_cast_as_they_are_seen() -> None:
    whole = counted(32, 64, dtype=torch.float16)
    seen = torch.as_strided(whole, (32, 64), (1, 32))
    device = torch.as_strided(whole.to("npu"), (32, 64), (1, 32))
    assert torch.equal(torch_npu.npu_format_cast(device, NZ).cpu(), seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(4, 8, 3, 5), (2, 33, 2, 2), (17, 16, 1, 3)])
@pytest.mark.parametrize("format_", [NC1HWC0, FRACTAL_Z])
def test_grouped_channels_are_as_documented_and_convert_back(
    shape: tuple[int, ...], dtype: torch.dtype, format_: int
) -> None:
    values = counted(*shape, dtype=dtype)
    cast = torch_npu.npu_format_cast(values.to("npu"), format_)
    assert torch_npu.get_npu_format(cast) == format_
    groups = split(padded(values, 1, 16), 1, 16)  # N, C1, C0, H, W
    if format_ == NC1HWC0:
        expected = groups.permute(0, 1, 3, 4, 2).contiguous()
    else:
        weights = split(padded(groups, 0, 16), 0, 16)  # N1, N0, C1, C0, H, W
        expected = weights.permute(2, 4, 5, 0, 1, 3).contiguous()
    assert torch.equal(memory_of(cast, tuple(expected.shape)), expected)
    assert torch.equal(torch_npu.npu_format_cast(cast, 0).cpu(), values)


@pytest.mark.parametrize("format_", [NDC1HWC0, FRACTAL_Z_3D])
def test_grouped_channels_of_volumes_convert_back(format_: int) -> None:
    values = counted(3, 18, 2, 4, 5, dtype=torch.float16)
    cast = torch_npu.npu_format_cast(values.to("npu"), format_)
    assert torch_npu.get_npu_format(cast) == format_
    groups = split(padded(values, 1, 16), 1, 16)  # N, C1, C0, D, H, W
    if format_ == NDC1HWC0:
        expected = groups.permute(0, 3, 1, 4, 5, 2).contiguous()
    else:
        weights = split(padded(groups, 0, 16), 0, 16)  # N1, N0, C1, C0, D, H, W
        expected = weights.permute(4, 2, 5, 6, 0, 1, 3).contiguous()
    assert torch.equal(memory_of(cast, tuple(expected.shape)), expected)
    assert torch.equal(torch_npu.npu_format_cast(cast, 30).cpu(), values)


def test_sizes_of_no_tensor_are_refused() -> None:
    library = ctypes.CDLL("libopapi.so")
    calculate = library.aclnnNpuFormatCastCalculateSizeAndFormat
    assert calculate(None, NZ, -1, None, None, None) == 161001
