"""SwiGLU preceded by dequantisation and followed by quantisation, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from torch.nn.functional import silu

from operators.drawn_tensors import random

ROWS, WIDTH = 10, 64


def npu(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to("npu")


def swiglu(x: torch.Tensor, left: bool) -> torch.Tensor:
    first, second = x.double().chunk(2, -1)
    return silu(first) * second if left else first * silu(second)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("shape", [(ROWS, 2 * WIDTH), (2, 3, 2 * WIDTH), (0, 2 * WIDTH)])
def test_dynamic_swiglu_quant_equals_reference(
    conformance: Any, dtype: torch.dtype, left: bool, smooth: bool, shape: tuple[int, ...]
) -> None:
    x = random(*shape, dtype=dtype)
    factors = random(1, WIDTH, seed=1) if smooth else None
    y, scale = torch_npu.npu_swiglu_quant(
        npu(x), smooth_scales=npu(factors), activate_left=left, quant_mode=1
    )
    assert y.shape == (*shape[:-1], WIDTH)
    values = swiglu(x, left) * (1 if factors is None else factors.double())
    if x.numel():
        # This operator returns what the values were multiplied with.
        expected = 127 / values.abs().amax(-1)
        conformance.close(scale.cpu(), expected, ulps=64)
        conformance.quantized(y.cpu(), values * expected.unsqueeze(-1), slack=2e-3)


@pytest.mark.parametrize("sizes", [False, True])
def test_swiglu_quant_gives_each_group_its_factors(conformance: Any, sizes: bool) -> None:
    x, factors = random(ROWS, 2 * WIDTH), random(3, WIDTH, seed=1)
    groups = [4, 0, 6] if sizes else [4, 4, 10]
    y, scale = torch_npu.npu_swiglu_quant(
        npu(x),
        smooth_scales=npu(factors),
        group_index=torch.tensor(groups, dtype=torch.int32).to("npu"),
        activate_left=True,
        quant_mode=1,
        group_list_type=int(sizes),
    )
    values = swiglu(x, left=True) * factors[[0] * 4 + [2] * 6].double()
    expected = 127 / values.abs().amax(-1)
    conformance.close(scale.cpu(), expected, ulps=64)
    conformance.quantized(y.cpu(), values * expected.unsqueeze(-1), slack=2e-3)


@pytest.mark.parametrize("single", [False, True])
def test_static_swiglu_quant_equals_reference(conformance: Any, single: bool) -> None:
    x = random(ROWS, 2 * WIDTH, dtype=torch.float16)
    shape = (2,) if single else (2, WIDTH)
    factors, offsets = random(*shape, seed=1) * 30, random(*shape, seed=2) * 5
    y, _ = torch_npu.npu_swiglu_quant(
        npu(x),
        smooth_scales=npu(factors),
        offsets=npu(offsets),
        group_index=torch.tensor([3, ROWS], dtype=torch.int32).to("npu"),
        activate_left=True,
    )
    rows = [0] * 3 + [1] * (ROWS - 3)
    f, o = (t.double().view(2, -1)[rows] for t in (factors, offsets))
    conformance.quantized(y.cpu(), swiglu(x, left=True) * f + o, slack=2e-3)


def test_swiglu_quant_refuses_what_the_device_refuses() -> None:
    x = random(4, 2 * WIDTH).to("npu")
    call = torch_npu.npu_swiglu_quant
    with pytest.raises(RuntimeError, match=r"argument 'x': expected one of the dtypes"):
        call(x.int(), quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'smoothScales': expected one of the dtypes"):
        call(x, smooth_scales=x[:1, :WIDTH].half(), quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'smoothScales': expected shape"):
        call(x, smooth_scales=x[:1, :3], quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'smoothScales': expected smoothScales and"):
        call(x)
    with pytest.raises(RuntimeError, match=r"argument 'dstType': expected int8"):
        call(x, quant_mode=1, dst_type=torch.quint4x2)


def dequantized(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    tokens: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    values = x.double()
    if bias is not None and bias.dtype == torch.int32:
        values = values + bias.double()
    if weight is not None:
        values = values * weight.double()
    if tokens is not None:
        values = values * tokens.double().unsqueeze(1)
    if bias is not None and bias.dtype != torch.int32:
        values = values + bias.double()
    return values


def variant(values: torch.Tensor, mode: int, left: bool) -> torch.Tensor:
    if mode == 0:
        return swiglu(values, left)
    first, second = (values[:, ::2], values[:, 1::2]) if mode == 1 else values.chunk(2, -1)
    gate, linear = (first, second) if left else (second, first)
    gate = gate.clamp(max=7.0)
    return gate * torch.sigmoid(1.702 * gate) * (linear.clamp(-7.0, 7.0) + 1)


@pytest.mark.parametrize(
    "mode",
    [
        0,
        1,
        pytest.param(
            2, marks=pytest.mark.absent_in_torch_npu("2.10", reason="swiglu_mode is 0 or 1")
        ),
    ],
)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("kind", [None, torch.int32, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("smooth", [False, True])
def test_dynamic_dequant_swiglu_quant_equals_reference(
    conformance: Any, mode: int, tokens: bool, kind: torch.dtype | None, smooth: bool
) -> None:
    x = random(ROWS, 2 * WIDTH).mul(3000).int()
    weight = random(2 * WIDTH, seed=1).abs().add(0.1).mul(1e-3)
    token = random(ROWS, seed=2).abs().add(0.1) if tokens else None
    bias = None if kind is None else random(2 * WIDTH, seed=3).mul(5).to(kind)
    factor = random(WIDTH, seed=4) if smooth else None
    y, scale = torch_npu.npu_dequant_swiglu_quant(
        npu(x),
        weight_scale=npu(weight),
        activation_scale=npu(token),
        bias=npu(bias),
        quant_scale=npu(factor),
        activate_left=True,
        quant_mode=1,
        swiglu_mode=mode,
    )
    values = variant(dequantized(x, weight, token, bias), mode, left=True)
    values = values if factor is None else values * factor.double()
    expected = values.abs().amax(-1) / 127
    conformance.close(scale.cpu(), expected, ulps=200)
    conformance.quantized(y.cpu(), values / expected.unsqueeze(-1), slack=5e-3)


@pytest.mark.parametrize("left", [False, True])
def test_dequant_swiglu_quant_of_bfloat16_in_groups(conformance: Any, left: bool) -> None:
    x, factor = random(ROWS, 2 * WIDTH, dtype=torch.bfloat16), random(2, WIDTH, seed=1)
    y, scale = torch_npu.npu_dequant_swiglu_quant(
        npu(x),
        quant_scale=npu(factor),
        group_index=torch.tensor([4, 6]).to("npu"),
        activate_left=left,
        quant_mode=1,
    )
    values = swiglu(x, left) * factor[[0] * 4 + [1] * 6].double()
    expected = values.abs().amax(-1) / 127
    conformance.close(scale.cpu(), expected, ulps=64)
    conformance.quantized(y.cpu(), values / expected.unsqueeze(-1), slack=2e-3)


def test_static_dequant_swiglu_quant_divides(conformance: Any) -> None:
    x = random(ROWS, 2 * WIDTH, dtype=torch.bfloat16)
    factor, offset = random(1, seed=1).abs().mul(0.02), random(1, seed=2)
    y, _ = torch_npu.npu_dequant_swiglu_quant(
        npu(x), quant_scale=npu(factor), quant_offset=npu(offset), activate_left=True
    )
    expected = swiglu(x, left=True) / factor.double() + offset.double()
    conformance.quantized(y.cpu(), expected, slack=2e-3)


def test_dequant_swiglu_quant_refuses_what_the_device_refuses() -> None:
    x, weight = torch.ones(4, 128, dtype=torch.int32).to("npu"), torch.ones(128).to("npu")
    call = torch_npu.npu_dequant_swiglu_quant
    with pytest.raises(RuntimeError, match=r"argument 'x': expected one of the dtypes"):
        call(x.float(), quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'x': expected a last dimension"):
        call(x[:, :96].contiguous(), weight_scale=weight[:96], quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'weightScale': expected a tensor beside"):
        call(x, quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'weightScale': expected none beside"):
        call(x.bfloat16(), weight_scale=weight, quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'weightScale': expected 128 elements"):
        call(x, weight_scale=weight[:3], quant_mode=1)
    with pytest.raises(RuntimeError, match=r"argument 'quantScale': expected quantScale and"):
        call(x, weight_scale=weight)
    with pytest.raises(RuntimeError, match=r"argument 'quantOffset': expected none in dynamic"):
        call(x, weight_scale=weight, quant_offset=weight[:1], quant_mode=1)
