"""From integers back to floating point, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

HALVES = [torch.bfloat16, torch.float16]


def factors(size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(size, generator=generator).add(0.5).mul(1e-3).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_anti_quantize_equals_reference(
    conformance: Any, dtype: torch.dtype, single: bool, offset: bool, kind: torch.dtype
) -> None:
    x = torch.arange(-128, 128, dtype=torch.int8).view(2, 8, 16)
    scale = factors(1 if single else 16, dtype=kind)
    shift = torch.arange(scale.numel(), dtype=torch.float32).sub(3.5).to(kind) if offset else None
    y = torch_npu.npu_anti_quant(
        x.to("npu"),
        scale.to("npu"),
        offset=None if shift is None else shift.to("npu"),
        dst_dtype=dtype,
    )
    values = x.double() if shift is None else x.double() + shift.double()
    conformance.close(y.cpu(), values * scale.double())


def test_anti_quantize_undoes_packed_int4(conformance: Any) -> None:
    values = torch.randint(-8, 8, (3, 16), generator=torch.Generator().manual_seed(2))
    packed = torch_npu.npu_quantize(
        values.float().to("npu"), torch.ones(1).to("npu"), None, torch.quint4x2, -1, False
    )
    scale = factors(16)
    y = torch_npu.npu_anti_quant(
        packed, scale.to("npu"), dst_dtype=torch.float16, src_dtype=torch.quint4x2
    )
    conformance.close(y.cpu(), values.double() * scale.double())


def test_anti_quantize_refuses_what_the_device_refuses() -> None:
    x, scale = torch.ones(2, 8, dtype=torch.int8).to("npu"), torch.ones(8).to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'y': expected one of the dtypes"):
        torch_npu.npu_anti_quant(x, scale, dst_dtype=torch.float32)
    with pytest.raises(RuntimeError, match=r"argument 'scale': expected one of the dtypes"):
        torch_npu.npu_anti_quant(x, scale.half())
    with pytest.raises(RuntimeError, match=r"argument 'scale': expected shape \[1\] or \[8\]"):
        torch_npu.npu_anti_quant(x, scale[:3])
    with pytest.raises(RuntimeError, match=r"argument 'offset': expected float32"):
        torch_npu.npu_anti_quant(x, scale, offset=scale.bfloat16())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("kind", [None, torch.int32, torch.float32, torch.bfloat16, torch.float16])
def test_dequant_bias_equals_reference(
    conformance: Any, dtype: torch.dtype, activation: bool, kind: torch.dtype | None
) -> None:
    x = torch.randint(-9999, 9999, (5, 32), generator=torch.Generator().manual_seed(1)).int()
    weight = factors(32, dtype=torch.bfloat16 if dtype == torch.bfloat16 else torch.float32)
    tokens = factors(5, seed=4).mul(1000) if activation else None
    bias = None if kind is None else torch.arange(-8, 24).to(kind)
    y = torch_npu.npu_dequant_bias(
        x.to("npu"),
        weight.to("npu"),
        None if tokens is None else tokens.to("npu"),
        None if bias is None else bias.to("npu"),
        output_dtype=dtype,
    )
    factor = weight.double() * (1 if tokens is None else tokens.double().unsqueeze(1))
    first = bias.double() if bias is not None and kind == torch.int32 else 0
    last = bias.double() if bias is not None and kind != torch.int32 else torch.zeros(32).double()
    scaled = (x.double() + first) * factor
    conformance.close(y.cpu(), scaled + last, magnitude=scaled.abs() + last.abs())


def test_dequant_bias_refuses_what_the_device_refuses() -> None:
    x, scale = torch.ones(4, 8, dtype=torch.int32).to("npu"), torch.ones(8).to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'x': expected one of the dtypes int32"):
        torch_npu.npu_dequant_bias(x.half(), scale, None, None)
    with pytest.raises(RuntimeError, match=r"argument 'weightScale': expected one of the dtypes"):
        torch_npu.npu_dequant_bias(x, scale, None, None, output_dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"argument 'activationScale': expected shape \[4\]"):
        torch_npu.npu_dequant_bias(x, scale, scale, None)
    with pytest.raises(RuntimeError, match=r"argument 'bias': expected shape \[8\]"):
        torch_npu.npu_dequant_bias(x, scale, None, scale[:2])
