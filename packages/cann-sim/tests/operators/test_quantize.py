"""Quantising with given scales and with the scale of each row, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.int4 import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable

NZ, ND = 29, 2
FLOATS = [torch.bfloat16, torch.float16, torch.float32]
HALVES = [torch.bfloat16, torch.float16]


def positive(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator).add(0.5).mul(0.02).to(dtype)


def whole(*shape: int, seed: int = 0, most: int = 20) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most, shape, generator=generator)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("single", [False, True])
def test_quantize_by_division_equals_reference(
    conformance: Any, dtype: torch.dtype, axis: int, single: bool
) -> None:
    x = random(6, 10, 16, dtype=dtype)
    size = 1 if single else x.shape[axis]
    scales = positive(size, dtype=dtype)
    zero_points = whole(size).to(torch.bfloat16 if dtype == torch.bfloat16 else torch.int32)
    shape = [1, 1, 1]
    shape[axis] = size
    y = torch_npu.npu_quantize(
        x.to("npu"), scales.to("npu"), zero_points.to("npu"), torch.qint8, axis
    )
    expected = x.double() / scales.double().view(shape) + zero_points.double().view(shape)
    assert y.dtype == torch.int8
    conformance.quantized(y.cpu(), expected)


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [(torch.quint8, 0, 255), (torch.qint8, -128, 127), (torch.qint32, -(2**31), 2**31 - 1)],
)
def test_quantize_saturates(conformance: Any, dtype: torch.dtype, least: int, most: int) -> None:
    x = torch.tensor([-1e30, -300.0, -0.5, 0.5, 1.5, 2.5, 127.4, 300.0, 1e30])
    y = torch_npu.npu_quantize(x.to("npu"), torch.ones(1).to("npu"), None, dtype, 0).cpu()
    conformance.quantized(y, x.double(), least=least, most=most, slack=0)
    assert y[3:6].tolist() == [0, 2, 2]  # ties go to the even one


def test_quantize_of_nothing_and_of_not_a_number() -> None:
    one = torch.ones(1).to("npu")
    assert torch_npu.npu_quantize(torch.ones(0, 4).to("npu"), one, None, torch.qint8, -1).shape == (
        0,
        4,
    )
    y = torch_npu.npu_quantize(torch.full((2,), float("nan")).to("npu"), one, None, torch.qint8, 0)
    assert y.cpu().tolist() == [0, 0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("axis", "size"), [(-1, 16), (-2, 10), (-1, 1)])
@pytest.mark.parametrize("offset", [False, True])
def test_quantize_by_multiplication_equals_reference(
    conformance: Any, dtype: torch.dtype, axis: int, size: int, offset: bool
) -> None:
    x = random(6, 10, 16, dtype=dtype)
    scales = positive(size, dtype=dtype).float().reciprocal().to(dtype)
    offsets = whole(size).to(dtype) if offset else None
    y = torch_npu.npu_quantize(
        x.to("npu"),
        scales.to("npu"),
        None if offsets is None else offsets.to("npu"),
        torch.qint8,
        axis,
        div_mode=False,
    )
    shape = (size, 1) if axis == -2 else (size,)
    expected = x.double() * scales.double().view(shape)
    if offsets is not None:
        expected += offsets.double().view(shape)
    conformance.quantized(y.cpu(), expected)


def test_quantize_reads_strided_inputs(conformance: Any) -> None:
    x = random(16, 12)[::2].t()
    y = torch_npu.npu_quantize(
        x.to("npu"), torch.full((1,), 20.0).to("npu"), None, torch.qint8, -1, div_mode=False
    )
    conformance.quantized(y.cpu(), x.double() * 20)


def test_quantize_packs_eight_int4_into_an_int32(conformance: Any) -> None:
    x = random(3, 32).mul(4)
    y = torch_npu.npu_quantize(
        x.to("npu"), torch.ones(1).to("npu"), None, torch.quint4x2, -1, div_mode=False
    ).cpu()
    assert y.dtype == torch.int32
    assert y.shape == (3, 4)
    conformance.quantized(unpacked(y), x.double(), least=-8, most=7)


@pytest.mark.usefixtures("internal_formats")
def test_quantize_of_nz_blocks_gives_the_values_of_a_plain_input() -> None:
    x = random(2, 48, 128).mul(4)
    blocks = torch_npu.npu_format_cast(x.to("npu"), NZ)
    one = torch.ones(1).to("npu")
    y = torch_npu.npu_quantize(blocks, one, None, torch.quint4x2, -1, div_mode=False)
    assert torch_npu.get_npu_format(y) == NZ
    plain = unpacked(torch_npu.npu_format_cast(y, ND).cpu())
    assert torch.equal(plain, x.round().clamp(-8, 7).long())


@pytest.mark.usefixtures("internal_formats")
def test_quantize_of_nz_blocks_refuses_what_their_kernel_lacks() -> None:
    one = torch.ones(1).to("npu")

    def quantize(x: torch.Tensor, scale: torch.Tensor = one, **changes: Any) -> torch.Tensor:
        given = {"zero_points": None, "dtype": torch.quint4x2, "axis": -1, **changes}
        cast = torch_npu.npu_format_cast(x.to("npu"), NZ)
        result: torch.Tensor = torch_npu.npu_quantize(cast, scale, div_mode=False, **given)
        torch_npu.npu.synchronize()
        return result

    whole = random(1, 16, 64)
    refusals: list[tuple[str, Callable[[], torch.Tensor]]] = [
        ("'x': expected one of the dtypes float32", lambda: quantize(whole.half(), one.half())),
        ("'x': expected whole NZ blocks", lambda: quantize(random(1, 16, 72))),
        ("'x': expected 3 dimensions", lambda: quantize(whole[0])),
        ("'y': expected int4", lambda: quantize(whole, dtype=torch.qint8)),
        ("'offset': an offset beside", lambda: quantize(whole, zero_points=one)),
        ("'scale': expected 1 beside", lambda: quantize(whole, 2 * one)),
    ]
    for text, call in refusals:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_quantize_refuses_what_the_device_refuses() -> None:
    x = random(4, 8, dtype=torch.float16).to("npu")
    scale, zero = torch.ones(8).to("npu"), torch.zeros(8, dtype=torch.int32).to("npu")
    refusals: list[tuple[str, tuple[Any, ...], bool]] = [
        ("argument 'x': expected one of the dtypes", (x.int(), scale, zero), True),
        ("argument 'x': expected one of the dtypes bfloat16", (x, scale.bfloat16(), None), True),
        ("argument 'zeroPoints': expected one of the dtypes", (x, scale, zero.half()), True),
        ("argument 'scales': expected 1 or 8 elements", (x, scale[:3], None), True),
        ("argument 'zeroPoints': expected shape", (x, scale, zero[:1]), True),
        ("argument 'scale': expected float16 as 'x'", (x, scale, None), False),
        ("argument 'offset': expected one of the dtypes", (x, scale.half(), zero), False),
        ("argument 'offset': expected shape", (x, scale.half(), zero[:1].half()), False),
    ]
    for text, arguments, div_mode in refusals:
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_quantize(*arguments, torch.qint8, -1, div_mode)
    with pytest.raises(RuntimeError, match=r"argument 'axis': expected one of the last two"):
        torch_npu.npu_quantize(x.view(2, 2, 8), scale.half(), None, torch.qint8, -3, False)
    with pytest.raises(RuntimeError, match=r"argument 'axis': expected a dimension in \[-2, 2\)"):
        torch_npu.npu_quantize(x, scale, None, torch.qint8, 2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(1, 8), (5, 64), (2, 3, 100), (0, 8)])
@pytest.mark.parametrize("smooth", [False, True])
def test_dynamic_quantize_equals_reference(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...], smooth: bool
) -> None:
    x = random(*shape, dtype=dtype)
    factors = random(shape[-1], seed=1, dtype=dtype) if smooth else None
    y, scale = torch_npu.npu_dynamic_quant(
        x.to("npu"), smooth_scales=None if factors is None else factors.to("npu")
    )
    values = x.double() if factors is None else x.double() * factors.double()
    assert scale.shape == shape[:-1]
    if x.numel():
        expected = values.abs().amax(-1) / 127
        conformance.close(scale.cpu(), expected)
        conformance.quantized(y.cpu(), values / expected.unsqueeze(-1))


def test_dynamic_quantize_of_zeros_is_zero() -> None:
    y, scale = torch_npu.npu_dynamic_quant(torch.zeros(2, 8, dtype=torch.float16).to("npu"))
    assert not y.cpu().any()
    assert not scale.cpu().any()


def test_dynamic_quantize_smooths_each_group(conformance: Any) -> None:
    x = random(10, 16, dtype=torch.bfloat16)
    factors = random(3, 16, seed=1, dtype=torch.bfloat16)
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)
    y, scale = torch_npu.npu_dynamic_quant(
        x.to("npu"), smooth_scales=factors.to("npu"), group_index=ends.to("npu")
    )
    rows = torch.cat([factors[[0, 0, 2, 2, 2, 2, 2]], torch.ones(3, 16)])
    values = x.double() * rows.double()
    expected = values.abs().amax(-1) / 127
    conformance.close(scale.cpu(), expected)
    conformance.quantized(y.cpu(), values / expected.unsqueeze(-1))


def test_dynamic_quantize_packs_int4(conformance: Any) -> None:
    x = random(4, 32, dtype=torch.float16)
    y, scale = torch_npu.npu_dynamic_quant(x.to("npu"), dst_type=torch.quint4x2)
    expected = x.double().abs().amax(-1) / 7
    conformance.close(scale.cpu(), expected)
    conformance.quantized(unpacked(y.cpu()), x.double() / expected.unsqueeze(-1), least=-8, most=7)


@pytest.mark.parametrize("dtype", HALVES)
def test_asymmetric_dynamic_quantize_uses_the_range_of_the_row(
    conformance: Any, dtype: torch.dtype
) -> None:
    x = random(6, 64, dtype=dtype).add(1)
    y, scale, offset = torch_npu.npu_dynamic_quant_asymmetric(x.to("npu"))
    most, least = x.double().amax(-1), x.double().amin(-1)
    expected = (most - least) / 255
    shift = 127 - most / expected
    conformance.close(scale.cpu(), expected)
    conformance.close(offset.cpu(), shift, magnitude=most / expected)
    values = x.double() / expected.unsqueeze(-1) + shift.unsqueeze(-1)
    conformance.quantized(y.cpu(), values)


def test_dynamic_quantize_refuses_what_the_device_refuses() -> None:
    x = random(4, 8, dtype=torch.float16).to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'x': expected one of the dtypes"):
        torch_npu.npu_dynamic_quant(x.float())
    with pytest.raises(RuntimeError, match=r"argument 'smoothScales': expected one of"):
        torch_npu.npu_dynamic_quant(x, smooth_scales=torch.ones(8).to("npu"))
    with pytest.raises(RuntimeError, match=r"argument 'smoothScales': expected shape \[8\]"):
        torch_npu.npu_dynamic_quant(x, smooth_scales=x[0, :4])
    with pytest.raises(RuntimeError, match=r"argument 'groupIndex': expected smoothScales"):
        torch_npu.npu_dynamic_quant(x, group_index=torch.tensor([4], dtype=torch.int32).to("npu"))
    with pytest.raises(RuntimeError, match=r"aclnnDynamicQuantV4: the simulated Ascend910B1 does"):
        torch_npu.npu_dynamic_quant(x, quant_mode="pertensor")
