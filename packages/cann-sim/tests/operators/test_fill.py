"""Filling and generating tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_fill_every_element(dtype: torch.dtype) -> None:
    assert torch.equal(
        torch.zeros(3, 4, dtype=dtype, device="npu").cpu(), torch.zeros(3, 4).to(dtype)
    )
    assert torch.equal(
        torch.ones(3, 4, dtype=dtype, device="npu").cpu(), torch.ones(3, 4).to(dtype)
    )
    full = torch.full((3,), 1, dtype=dtype, device="npu")
    assert torch.equal(full.cpu(), torch.full((3,), 1, dtype=dtype))
    assert torch.equal(
        torch.empty(0, dtype=dtype, device="npu").fill_(1).cpu(), torch.empty(0).to(dtype)
    )


def test_fill_of_a_view_leaves_the_rest() -> None:
    device = torch.ones(4, 6, device="npu")
    device[:, 1::2].zero_()
    device[0].fill_(torch.tensor(5.0).to("npu"))
    expected = torch.ones(4, 6)
    expected[:, 1::2] = 0
    expected[0] = 5
    assert torch.equal(device.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bounds", [(0, 10, 1), (2, 20, 3), (5, -5, -2), (0, 0, 1)])
def test_arange_equals_reference(dtype: torch.dtype, bounds: tuple[int, int, int]) -> None:
    assert torch.equal(
        torch.arange(*bounds, dtype=dtype, device="npu").cpu(), torch.arange(*bounds, dtype=dtype)
    )


def test_arange_of_large_integers_is_exact() -> None:
    start = 2**53
    result = torch.arange(start, start + 4, device="npu").cpu()
    assert torch.equal(result, torch.arange(start, start + 4))


def test_arange_with_fractional_step(conformance: Any) -> None:
    result = torch.arange(0, 1, 0.1, device="npu").cpu()
    conformance.close(result, torch.arange(0, 1, 0.1, dtype=torch.float64))


def test_linspace_and_eye() -> None:
    torch.testing.assert_close(
        torch.linspace(-1, 2, 7, device="npu").cpu(), torch.linspace(-1, 2, 7)
    )
    assert torch.equal(torch.eye(3, 4, device="npu").cpu(), torch.eye(3, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_triangles_in_batches(dtype: torch.dtype, diagonal: int) -> None:
    values = torch.ones(2, 4, 5).to(dtype)
    device = values.to("npu")
    assert torch.equal(device.tril(diagonal).cpu(), values.tril(diagonal))
    assert torch.equal(device.triu(diagonal).cpu(), values.triu(diagonal))
    assert torch.equal(
        device.transpose(1, 2).tril(diagonal).cpu(), values.transpose(1, 2).tril(diagonal)
    )


@pytest.mark.parametrize("name", ["tril_", "triu_"])
def test_inplace_triangle_equals_reference(name: str) -> None:
    values = torch.ones(4, 5)
    assert torch.equal(getattr(values.to("npu"), name)(1).cpu(), getattr(values, name)(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize(("start", "end", "step"), [(0, 5, 1), (7, -3, -2), (4, 4, 3)])
def test_range_includes_its_end(dtype: torch.dtype, start: int, end: int, step: int) -> None:
    make: Any = torch.ops.aten.range.step
    values = make(start, end, step, dtype=dtype, device="npu").cpu()
    assert torch.equal(values, torch.arange(start, end + (1 if step > 0 else -1), step).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_logspace_rounds_the_powers_once(conformance: Any, dtype: torch.dtype, steps: int) -> None:
    result = torch.logspace(-1, 2.5, steps, base=3.0, dtype=dtype, device="npu").cpu()
    conformance.close(result, torch.logspace(-1, 2.5, steps, base=3.0, dtype=torch.float64))
