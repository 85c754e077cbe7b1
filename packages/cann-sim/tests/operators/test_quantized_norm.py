"""RMSNorm followed by quantisation, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
EPSILON = 1e-6
WIDTH = 128


def npu(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to("npu")


def norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * gamma.double()


def quant_parameters(dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand(WIDTH, generator=generator).add(0.5).mul(0.03)
    zero_points = torch.randint(-20, 20, (WIDTH,), generator=generator)
    if dtype == torch.float16:
        return scales, zero_points.int()
    return scales.to(dtype), zero_points.to(dtype)


def steps(dtype: torch.dtype, values: torch.Tensor) -> float:
    """Return how far the arithmetic of the device may be from float64, in integer steps."""
    # In float16 the product with gamma is a float16 one of a rounded value; bfloat16 is float32.
    largest = values.abs().max().item() if values.numel() else 0.0
    return largest * (2.5 * 2.0**-11 if dtype == torch.float16 else 1e-5)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(1, WIDTH), (5, WIDTH), (2, 3, WIDTH), (0, WIDTH)])
@pytest.mark.parametrize("div_mode", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
def test_add_rms_norm_quant_equals_reference(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...], div_mode: bool, zeros: bool
) -> None:
    a, b = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
    gamma = random(WIDTH, seed=2, dtype=dtype)
    scales, zero_points = quant_parameters(dtype)
    if not div_mode:
        scales = scales.float().reciprocal().to(scales.dtype)
    y, _, x = torch_npu.npu_add_rms_norm_quant(
        npu(a),
        npu(b),
        npu(gamma),
        npu(scales),
        npu(zero_points) if zeros else None,
        epsilon=EPSILON,
        div_mode=div_mode,
    )
    assert torch.equal(x.cpu(), a + b)
    total = a + b if dtype == torch.float16 else a.double() + b.double()
    value = norm(total, gamma)
    expected = value / scales.double() if div_mode else value * scales.double()
    slack = steps(dtype, expected)
    if zeros:
        expected = expected + zero_points.double()
    conformance.quantized(y.cpu(), expected, slack=slack)


@pytest.mark.parametrize("dtype", HALVES)
def test_add_rms_norm_quant_gives_a_second_result(conformance: Any, dtype: torch.dtype) -> None:
    a, b = random(4, WIDTH, dtype=dtype), random(4, WIDTH, seed=1, dtype=dtype)
    gamma = random(WIDTH, seed=2, dtype=dtype)
    first, second = quant_parameters(dtype), quant_parameters(dtype, seed=5)
    y1, y2, _ = torch_npu.npu_add_rms_norm_quant(
        npu(a),
        npu(b),
        npu(gamma),
        npu(first[0]),
        npu(first[1]),
        scales2=npu(second[0]),
        zero_points2=npu(second[1]),
        epsilon=EPSILON,
    )
    total = a + b if dtype == torch.float16 else a.double() + b.double()
    for y, (scales, zero_points) in ((y1, first), (y2, second)):
        expected = norm(total, gamma) / scales.double()
        conformance.quantized(
            y.cpu(), expected + zero_points.double(), slack=steps(dtype, expected)
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_add_rms_norm_quant_rounds_where_the_device_rounds(dtype: torch.dtype) -> None:
    a, b = random(64, WIDTH, dtype=dtype), random(64, WIDTH, seed=1, dtype=dtype)
    gamma = random(WIDTH, seed=2, dtype=dtype)
    scales, zero_points = quant_parameters(dtype)
    y, _, _ = torch_npu.npu_add_rms_norm_quant(
        npu(a), npu(b), npu(gamma), npu(scales), npu(zero_points), epsilon=EPSILON
    )
    wide = (a + b).float() if dtype == torch.float16 else a.float() + b.float()
    scaled = wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    value = (scaled.half() * gamma).float() if dtype == torch.float16 else scaled * gamma.float()
    expected = (value / scales.float() + zero_points.float()).round().clamp(-128, 127)
    assert torch.equal(y.cpu().float(), expected)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("single", [False, True])
def test_add_rms_norm_quant_adds_beta(conformance: Any, dtype: torch.dtype, single: bool) -> None:
    a, b = random(4, WIDTH, dtype=dtype), random(4, WIDTH, seed=1, dtype=dtype)
    gamma, beta = random(WIDTH, seed=2, dtype=dtype), random(WIDTH, seed=3, dtype=dtype)
    scales, zero_points = quant_parameters(dtype)
    if single:
        scales, zero_points = scales[:1], zero_points[:1]
    y, _, _ = torch_npu.npu_add_rms_norm_quant(
        npu(a),
        npu(b),
        npu(gamma),
        npu(scales),
        npu(zero_points),
        beta=npu(beta),
        epsilon=EPSILON,
    )
    # With a single scale the float32 sum is normalised, otherwise the rounded one.
    total = a.double() + b.double() if single else a + b
    value = norm(total, gamma) + beta.double()
    expected = value / scales.double()
    slack = steps(torch.bfloat16 if single else dtype, norm(total, gamma) / scales.double())
    conformance.quantized(y.cpu(), expected + zero_points.double(), slack=slack + 1e-3)


@pytest.mark.parametrize("dtype", HALVES)
def test_add_rms_norm_quant_refuses_what_the_device_refuses(dtype: torch.dtype) -> None:
    x, gamma = random(4, WIDTH, dtype=dtype), random(WIDTH, seed=2, dtype=dtype)
    scales, zero_points = quant_parameters(dtype)
    other = quant_parameters(torch.float16 if dtype == torch.bfloat16 else torch.bfloat16)
    refusals: list[tuple[str, tuple[torch.Tensor, ...]]] = [
        ("argument 'x1': expected one of the dtypes", (x.float(), x, gamma, scales, zero_points)),
        ("argument 'x2': expected", (x, x.float(), gamma, scales, zero_points)),
        ("argument 'gamma': expected", (x, x, gamma.float(), scales, zero_points)),
        ("argument 'gamma': expected the trailing shape", (x, x, gamma[1:], scales, zero_points)),
        ("argument 'scales1': expected one of the dtypes", (x, x, gamma, other[0], zero_points)),
        ("argument 'scales1': expected shape", (x, x, gamma, scales[:1], zero_points)),
        ("argument 'zeroPoints1': expected one of the", (x, x, gamma, scales, other[1])),
        ("argument 'zeroPoints1': expected shape", (x, x, gamma, scales, zero_points[:1])),
    ]
    for text, arguments in refusals:
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_add_rms_norm_quant(*map(npu, arguments))
    with pytest.raises(RuntimeError, match=r"argument 'zeroPoints2': expected scales2"):
        torch_npu.npu_add_rms_norm_quant(
            *map(npu, (x, x, gamma, scales, zero_points)), zero_points2=npu(zero_points)
        )


@pytest.mark.absent_in_torch_npu("2.10", reason="output_mask is an array of two")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(1, WIDTH), (2, 3, WIDTH), (0, WIDTH)])
@pytest.mark.parametrize("smooth", [0, 1, 2])
@pytest.mark.parametrize("beta", [False, True])
def test_add_rms_norm_dynamic_quant_equals_reference(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...], smooth: int, beta: bool
) -> None:
    a, b = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
    gamma = random(WIDTH, seed=2, dtype=dtype)
    addend = random(WIDTH, seed=3, dtype=dtype) if beta else None
    factors = [random(WIDTH, seed=7 + i, dtype=dtype) for i in range(smooth)]
    names = ("smooth_scale1", "smooth_scale2")
    y1, y2, x, scale1, scale2 = torch_npu.npu_add_rms_norm_dynamic_quant(
        npu(a),
        npu(b),
        npu(gamma),
        beta=npu(addend),
        epsilon=EPSILON,
        **{name: npu(factor) for name, factor in zip(names, factors, strict=False)},
    )
    assert torch.equal(x.cpu(), a + b)
    value = norm(a.double() + b.double(), gamma)
    if addend is not None:
        value = value + addend.double()
    wanted = [(y1, scale1)] if smooth < 2 else [(y1, scale1), (y2, scale2)]
    for index, (y, scale) in enumerate(wanted):
        smoothed = value * factors[index].double() if factors else value
        assert scale.shape == shape[:-1]
        if a.numel():
            expected = smoothed.abs().amax(-1) / 127
            conformance.close(scale.cpu(), expected, ulps=WIDTH)
            conformance.quantized(y.cpu(), smoothed / expected.unsqueeze(-1), slack=2e-3)


@pytest.mark.absent_in_torch_npu("2.10", reason="output_mask is an array of two")
def test_add_rms_norm_dynamic_quant_obeys_its_mask(conformance: Any) -> None:
    a, gamma = random(4, WIDTH, dtype=torch.float16), random(WIDTH, seed=2, dtype=torch.float16)
    y1, y2, _, scale1, scale2 = torch_npu.npu_add_rms_norm_dynamic_quant(
        npu(a), npu(a), npu(gamma), epsilon=EPSILON, output_mask=[False, True]
    )
    value = norm(a.double() * 2, gamma)
    expected = value.abs().amax(-1) / 127
    conformance.close(scale2.cpu(), expected, ulps=WIDTH)
    conformance.quantized(y2.cpu(), value / expected.unsqueeze(-1), slack=2e-3)
    assert y1.dim() == 0
    assert scale1.dim() == 0


@pytest.mark.absent_in_torch_npu("2.10", reason="output_mask is an array of two")
def test_add_rms_norm_dynamic_quant_refuses_what_the_device_refuses() -> None:
    x = random(4, WIDTH, dtype=torch.float16).to("npu")
    gamma = random(WIDTH, seed=2, dtype=torch.float16).to("npu")
    call = torch_npu.npu_add_rms_norm_dynamic_quant
    with pytest.raises(RuntimeError, match=r"argument 'x1': expected one of the dtypes"):
        call(x.float(), x.float(), gamma.float())
    with pytest.raises(RuntimeError, match=r"argument 'gamma': expected shape"):
        call(x, x, gamma[1:])
    with pytest.raises(RuntimeError, match=r"argument 'smoothScale1': expected one of"):
        call(x, x, gamma, smooth_scale1=gamma.float())
    with pytest.raises(RuntimeError, match=r"argument 'smoothScale1': expected none where"):
        call(x, x, gamma, smooth_scale1=gamma, output_mask=[False, True])
    with pytest.raises(RuntimeError, match=r"argument 'smoothScale2': expected smoothScale1"):
        call(x, x, gamma, smooth_scale2=gamma)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rank", [1, 2])
def test_rms_norm_quant_equals_reference(conformance: Any, dtype: torch.dtype, rank: int) -> None:
    x = random(5, WIDTH, dtype=dtype)
    gamma, beta = random(WIDTH, seed=1, dtype=dtype), random(WIDTH, seed=2, dtype=dtype)
    scale = torch.tensor([0.03], dtype=dtype)
    offset = torch.tensor([5], dtype=torch.int8)
    weights = [w if rank == 1 else w.unsqueeze(0) for w in (gamma, beta)]
    y = torch_npu.npu_rms_norm_quant(npu(x), *map(npu, weights), npu(scale), npu(offset), EPSILON)
    expected = (norm(x, gamma) + beta.double()) / scale.double() + 5
    # Rounded to float16 first: up to 2**-5 below 128.
    conformance.quantized(y.cpu(), expected, slack=2.0**-5 + 1e-3)


def test_rms_norm_quant_refuses_what_the_device_refuses() -> None:
    x, w = random(2, 32, dtype=torch.float16).to("npu"), torch.ones(32).half().to("npu")
    scale, offset = torch.ones(1).half().to("npu"), torch.zeros(1, dtype=torch.int8).to("npu")
    refusals: list[tuple[str, tuple[torch.Tensor, ...]]] = [
        ("argument 'x': expected one of the dtypes", (x.float(), w, w, scale, offset)),
        ("argument 'beta': expected one of", (x, w, w.float(), scale, offset)),
        ("argument 'scale': expected shape", (x, w, w, w, offset)),
        ("argument 'scale': expected one of", (x, w, w, scale.float(), offset)),
        ("argument 'offset': expected one of the dtypes int8", (x, w, w, scale, scale)),
    ]
    for text, arguments in refusals:
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_rms_norm_quant(*arguments)
