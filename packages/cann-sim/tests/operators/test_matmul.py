"""The matrix product family against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from operators.drawn_tensors import random

FLOATS = [torch.bfloat16, torch.float16, torch.float32]


def product_size(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sum of the magnitudes that a product adds up: the scale of its accumulation error."""
    return a.double().abs() @ b.double().abs()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (1, 128, 64), (7, 65, 33), (64, 256, 128), (0, 4, 5)]
)
def test_product_accumulates_in_float32(
    conformance: Any, dtype: torch.dtype, m: int, k: int, n: int
) -> None:
    a, b = random(m, k, dtype=dtype), random(k, n, seed=1, dtype=dtype)
    size = product_size(a, b)
    conformance.check(torch.mm, a, b, ulps=k, magnitude=size)
    conformance.check(lambda x, y: x @ y.t(), a, b.t().contiguous(), ulps=k, magnitude=size)
    conformance.check(lambda x, y: x.t() @ y, a.t().contiguous(), b, ulps=k, magnitude=size)


@pytest.mark.parametrize("dtype", FLOATS)
def test_product_of_nothing_is_zero(dtype: torch.dtype) -> None:
    result = random(3, 0, dtype=dtype).to("npu") @ random(0, 4, dtype=dtype).to("npu")
    assert torch.equal(result.cpu(), torch.zeros(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_batches_broadcast(conformance: Any, dtype: torch.dtype) -> None:
    a, b = random(3, 5, 16, dtype=dtype), random(3, 16, 7, seed=1, dtype=dtype)
    conformance.check(torch.bmm, a, b, ulps=16, magnitude=product_size(a, b))
    conformance.check(torch.matmul, a, b[0], ulps=16, magnitude=product_size(a, b[0]))
    many = random(2, 1, 5, 16, dtype=dtype)
    conformance.check(torch.matmul, many, b, ulps=16, magnitude=product_size(many, b))
    conformance.check(torch.mv, a[0], b[0, :, 0], ulps=16, magnitude=product_size(a[0], b[0, :, 0]))
    vectors = (a[0, 0], b[0, :, 0])
    conformance.check(torch.dot, *vectors, ulps=16, magnitude=product_size(*vectors))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_float32_batches_accept_a_half_operand(half: torch.dtype) -> None:
    """As vLLM-Ascend's latent attention under context parallelism."""
    a, b = random(3, 5, 16, dtype=torch.float32), random(3, 16, 7, seed=1, dtype=half)
    result = torch.bmm(a.to("npu"), b.to("npu"))
    assert result.dtype == torch.float32
    assert torch.equal(result, torch.bmm(a.to("npu"), b.float().to("npu")))


def test_batches_of_two_halves_are_refused() -> None:
    a, b = random(3, 5, 16, dtype=torch.bfloat16), random(3, 16, 7, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="161002"):
        torch.bmm(a.to("npu"), b.to("npu"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2), (0, 1)])
def test_scaled_sum_is_rounded_once(
    conformance: Any, dtype: torch.dtype, beta: float, alpha: float
) -> None:
    c, a, b = (
        random(5, 7, seed=2, dtype=dtype),
        random(5, 16, dtype=dtype),
        random(16, 7, seed=1, dtype=dtype),
    )
    size = product_size(a, b) * alpha + c.double().abs() * beta
    conformance.check(
        lambda x, y, z: torch.addmm(x, y, z, beta=beta, alpha=alpha),
        c,
        a,
        b,
        ulps=24,
        magnitude=size,
    )
    conformance.check(
        lambda x, y, z: torch.addmm(x, y, z, beta=beta, alpha=alpha),
        c[0],
        a,
        b,
        ulps=24,
        magnitude=size,
    )
    batch = [c.expand(3, 5, 7), a.expand(3, 5, 16), b.expand(3, 16, 7)]
    conformance.check(
        lambda x, y, z: torch.baddbmm(x, y, z, beta=beta, alpha=alpha),
        *batch,
        ulps=24,
        magnitude=size,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_layer_equals_reference(conformance: Any, dtype: torch.dtype) -> None:
    x, w, bias = (
        random(2, 3, 32, dtype=dtype),
        random(10, 32, seed=1, dtype=dtype),
        random(10, dtype=dtype),
    )
    size = product_size(x, w.t()) + bias.double().abs()
    conformance.check(torch.nn.functional.linear, x, w, ulps=40, magnitude=size)
    conformance.check(torch.nn.functional.linear, x, w, bias, ulps=40, magnitude=size, roundings=2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_call_of_a_product_gives_the_same_bits(dtype: torch.dtype) -> None:
    a, w = random(6, 64, dtype=dtype).to("npu"), random(32, 64, seed=1, dtype=dtype).to("npu")
    expected = torch.mm(a, w.t()).cpu()
    assert torch.equal(torch.matmul(a, w.t()).cpu(), expected)
    assert torch.equal(torch.nn.functional.linear(a, w).cpu(), expected)
    out = torch.empty(6, 32, dtype=dtype, device="npu")
    torch.mm(a, w.t(), out=out)
    assert torch.equal(out.cpu(), expected)


def test_products_of_integers_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"expected one of the dtypes"):
        torch.ones(2, 2, dtype=torch.int32).to("npu") @ torch.ones(2, 2, dtype=torch.int32).to(
            "npu"
        )


def test_inplace_scaled_sum_equals_reference() -> None:
    c, a, b = (
        random(3, 4, dtype=torch.float32),
        random(3, 8, dtype=torch.float32),
        random(8, 4, dtype=torch.float32),
    )
    result = c.to("npu").addmm_(a.to("npu"), b.to("npu"), beta=0.5, alpha=2).cpu()
    torch.testing.assert_close(result, c.clone().addmm_(a, b, beta=0.5, alpha=2))
