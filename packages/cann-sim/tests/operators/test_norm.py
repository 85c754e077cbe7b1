"""Normalisations against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
EPSILON = 1e-6


def reference(x: torch.Tensor, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.double()
    rstd = (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    return wide * rstd * gamma.double(), rstd


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 8), (3, 128), (2, 5, 4, 64), (0, 16), (130, 1000)])
def test_rms_norm_equals_reference(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x, gamma = random(*shape, dtype=dtype), random(shape[-1], seed=1, dtype=dtype)
    y, rstd = torch_npu.npu_rms_norm(x.to("npu"), gamma.to("npu"), EPSILON)
    expected, expected_rstd = reference(x, gamma)
    conformance.close(y.cpu(), expected, ulps=shape[-1])
    assert rstd.dtype == torch.float32
    conformance.close(rstd.cpu(), expected_rstd, ulps=shape[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rms_norm_with_float32_gamma_is_rounded_once(conformance: Any, dtype: torch.dtype) -> None:
    x, gamma = random(4, 64, dtype=dtype), random(64, seed=1, dtype=torch.float32)
    y, _ = torch_npu.npu_rms_norm(x.to("npu"), gamma.to("npu"), EPSILON)
    conformance.close(y.cpu(), reference(x, gamma)[0], ulps=64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rms_norm_rounds_once_and_add_rms_norm_twice(dtype: torch.dtype) -> None:
    x, gamma = random(16, 256, dtype=dtype), random(256, seed=1, dtype=dtype)
    y, rstd = torch_npu.npu_rms_norm(x.to("npu"), gamma.to("npu"), EPSILON)
    normalized = x.float() * rstd.cpu()
    assert torch.equal(y.cpu(), (normalized * gamma.float()).to(dtype))
    zeros = torch.zeros_like(x).to("npu")
    fused, _, _ = torch_npu.npu_add_rms_norm(x.to("npu"), zeros, gamma.to("npu"), EPSILON)
    assert torch.equal(fused.cpu(), normalized.to(dtype) * gamma)
    assert not torch.equal(fused.cpu(), y.cpu())


@pytest.mark.parametrize("dtype", FLOATS)
def test_add_rms_norm_gives_norm_and_sum(conformance: Any, dtype: torch.dtype) -> None:
    a, b, gamma = (
        random(6, 128, dtype=dtype),
        random(6, 128, seed=1, dtype=dtype),
        random(128, seed=2, dtype=dtype),
    )
    y, rstd, x = torch_npu.npu_add_rms_norm(a.to("npu"), b.to("npu"), gamma.to("npu"), EPSILON)
    assert torch.equal(x.cpu(), a + b)
    # float16 is added in float16; bfloat16 keeps the float32 sum for the norm.
    total = (a + b) if dtype == torch.float16 else a.double() + b.double()
    expected, expected_rstd = reference(total, gamma)
    conformance.close(y.cpu(), expected, roundings=2, ulps=128)
    conformance.close(rstd.cpu(), expected_rstd, ulps=128)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("normalized", [(64,), (5, 64)])
def test_layer_norm_equals_reference(
    conformance: Any, dtype: torch.dtype, normalized: tuple[int, ...]
) -> None:
    x = random(3, 5, 64, dtype=dtype)
    weight, bias = (
        random(*normalized, seed=1, dtype=dtype),
        random(*normalized, seed=2, dtype=dtype),
    )
    conformance.check(
        lambda v, w, b: torch.nn.functional.layer_norm(v, normalized, w, b, 1e-5),
        x,
        weight,
        bias,
        ulps=400,
        magnitude=torch.tensor(4.0).double(),
    )
    conformance.check(
        lambda v: torch.nn.functional.layer_norm(v, normalized),
        x,
        ulps=400,
        magnitude=torch.tensor(4.0).double(),
    )


def test_rows_do_not_depend_on_the_batch() -> None:
    x, gamma = (
        random(33, 128, dtype=torch.bfloat16).to("npu"),
        random(128, dtype=torch.bfloat16).to("npu"),
    )
    whole = torch_npu.npu_rms_norm(x, gamma)[0].cpu()
    again = torch_npu.npu_rms_norm(x.clone(), gamma)[0].cpu()
    assert torch.equal(whole, again)


def test_gamma_of_another_width_is_refused() -> None:
    x, gamma = torch.ones(2, 8).to("npu"), torch.ones(4).to("npu")
    with pytest.raises(
        RuntimeError, match=r"aclnnRmsNorm: argument 'gamma': expected the trailing shape"
    ):
        torch_npu.npu_rms_norm(x, gamma)


def test_integer_input_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"aclnnRmsNorm: argument 'x': expected one of the dtypes"
    ):
        torch_npu.npu_rms_norm(torch.ones(2, 8).to("npu").int(), torch.ones(8).to("npu").int())


@pytest.mark.parametrize("dtype", FLOATS)
def test_inplace_add_rms_norm_overwrites_both_inputs(conformance: Any, dtype: torch.dtype) -> None:
    a, b, gamma = (random(6, 128, seed=s, dtype=dtype) for s in range(3))
    expected = torch_npu.npu_add_rms_norm(a.to("npu"), b.to("npu"), gamma[0].to("npu"), EPSILON)
    first, second = a.to("npu"), b.to("npu")
    rstd = torch_npu.npu_add_rms_norm_v2(first, second, gamma[0].to("npu"), EPSILON)
    for result, reference_value in zip((first, rstd, second), expected, strict=True):
        assert torch.equal(result.cpu(), reference_value.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 8), (2, 5, 64), (0, 16)])
def test_add_rms_norm_cast_gives_the_rounded_result_twice(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    a, b = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
    gamma = random(shape[-1], seed=2, dtype=dtype)
    wide, y, rstd, x = torch_npu.npu_add_rms_norm_cast(
        a.to("npu"), b.to("npu"), gamma.to("npu"), EPSILON
    )
    total = (a + b) if dtype == torch.float16 else a.double() + b.double()
    expected, expected_rstd = reference(total, gamma)
    conformance.close(y.cpu(), expected, roundings=2, ulps=shape[-1])
    conformance.close(rstd.cpu(), expected_rstd, ulps=shape[-1])
    assert wide.dtype == torch.float32
    assert torch.equal(wide.cpu(), y.cpu().float())
    assert torch.equal(x.cpu(), a + b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 8), (2, 5, 64), (0, 16)])
def test_gemma_rms_norm_multiplies_with_one_more(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x, gamma = random(*shape, dtype=dtype), random(shape[-1], seed=1, dtype=dtype)
    y, rstd = torch_npu.npu_gemma_rms_norm(x.to("npu"), gamma.to("npu"), EPSILON)
    expected, expected_rstd = reference(x, gamma.double() + 1)
    magnitude = reference(x, gamma.double().abs() + 1)[0].abs()
    conformance.close(y.cpu(), expected, ulps=shape[-1], magnitude=magnitude)
    conformance.close(rstd.cpu(), expected_rstd, ulps=shape[-1])


def test_gamma_of_another_dtype_is_refused() -> None:
    x, gamma = torch.ones(2, 8).half().to("npu"), torch.ones(8).to("npu")
    with pytest.raises(RuntimeError, match=r"aclnnGemmaRmsNorm: argument 'gamma': expected float"):
        torch_npu.npu_gemma_rms_norm(x, gamma)
    with pytest.raises(RuntimeError, match=r"aclnnAddRmsNormCast: argument 'gamma': expected"):
        torch_npu.npu_add_rms_norm_cast(x, x, gamma)
