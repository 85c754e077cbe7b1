"""Reductions against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from operators import drawn_tensors

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
DIMS = [(-1, False), (0, True), ((0, 2), False), ((1, 2), True)]
random = partial(drawn_tensors.random, seed=5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("dim", "keepdim"), DIMS)
def test_sum_and_mean_accumulate_in_float32(
    conformance: Any, dtype: torch.dtype, dim: Any, keepdim: bool
) -> None:
    values = random(6, 40, 30, dtype=dtype)
    count = 1200
    # Any order of n float32 additions errs by at most n units of the sum of magnitudes.
    size = values.double().abs().sum(dim, keepdim=keepdim)
    conformance.check(lambda v: v.sum(dim, keepdim=keepdim), values, ulps=count, magnitude=size)
    conformance.check(lambda v: v.mean(dim, keepdim=keepdim), values, ulps=40, magnitude=size / 30)


def test_sum_in_half_precision_does_not_saturate() -> None:
    ones = torch.ones(4096, dtype=torch.bfloat16).to("npu")
    assert ones.sum().item() == 4096


def test_sum_of_integers_is_exact() -> None:
    values = torch.tensor([2**53, 1, -(2**53), 5])
    assert values.to("npu").sum().item() == 6
    assert torch.tensor([True, True, False]).to("npu").sum().item() == 2
    assert values.to("npu").int()[1:2].sum(dtype=torch.int64).item() == 1


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64])
def test_extremes_are_exact(dtype: torch.dtype) -> None:
    values = random(4, 5, 6, dtype=torch.float32).mul(100).to(dtype)
    device = values.to("npu")
    assert device.max().item() == values.max().item()
    assert device.min().item() == values.min().item()
    assert torch.equal(device.amax((0, 2)).cpu(), values.amax((0, 2)))
    assert torch.equal(device.amin(1, keepdim=True).cpu(), values.amin(1, keepdim=True))
    for dim in (0, 1, -1):
        if dtype != torch.int32:  # which the device's MaxDim and MinDim do not take
            assert torch.equal(device.max(dim).values.cpu(), values.max(dim).values)
            least = device.min(dim, keepdim=True).indices.cpu()
            assert torch.equal(least, values.min(dim, True).indices)
        assert torch.equal(device.argmax(dim).cpu(), values.argmax(dim))
        assert torch.equal(device.argmin(dim).cpu(), values.argmin(dim))
    assert device.argmax().item() == values.argmax().item()


def test_argmax_of_ties_is_the_first() -> None:
    assert torch.tensor([1.0, 3.0, 3.0, 2.0]).to("npu").argmax().item() == 1


def test_all_and_any_over_dimensions() -> None:
    values = torch.tensor([[True, True], [False, True], [False, False]])
    device = values.to("npu")
    assert not device.all().item()
    assert device.any().item()
    for dim in (0, 1):
        assert torch.equal(device.all(dim).cpu(), values.all(dim))
        assert torch.equal(device.any(dim).cpu(), values.any(dim))


@pytest.mark.parametrize("dtype", FLOATS)
def test_cumulative_sums_and_products(conformance: Any, dtype: torch.dtype) -> None:
    values = random(5, 12, dtype=dtype)
    size = values.double().abs().sum()
    conformance.check(lambda v: v.cumsum(1), values, ulps=12, magnitude=size)
    conformance.check(lambda v: v.cumsum(0), values.t(), ulps=12, magnitude=size)
    conformance.check(lambda v: v.cummax(1).values, values)
    conformance.check(lambda v: v.prod(1), values[:, :4], ulps=12)
    assert torch.equal(torch.arange(10).to("npu").cumsum(0).cpu(), torch.arange(10).cumsum(0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_spread_and_norms(conformance: Any, dtype: torch.dtype) -> None:
    values = random(5, 12, dtype=dtype)
    magnitude = values.double().square().sum()
    for function in (
        lambda v: v.std(-1),
        lambda v: v.var(0, keepdim=True),
        lambda v: v.norm(dim=-1),
        lambda v: v.logsumexp(-1),
        lambda v: torch.linalg.vector_norm(v, 1, dim=0),
        lambda v: torch.linalg.vector_norm(v, 2.5, dim=1),
        lambda v: v.norm(4, dim=0),
    ):
        conformance.check(function, values, ulps=24, magnitude=magnitude)


def test_extreme_of_nothing_is_refused() -> None:
    with pytest.raises(RuntimeError):
        torch.empty(0).to("npu").max().cpu()


def test_remaining_reductions_equal_reference(conformance: Any) -> None:
    values = random(4, 5, dtype=torch.float32)
    conformance.check(lambda v: v.prod(), values, ulps=24)
    conformance.check(lambda v: v.cumprod(1), values, ulps=12)
    conformance.check(lambda v: v.cummin(0).values, values)
    conformance.check(lambda v: torch.stack(torch.aminmax(v, dim=1)), values)
    for part in range(2):
        conformance.check(
            lambda v, part=part: torch.var_mean(v, 1)[part],
            values,
            ulps=24,
            magnitude=torch.tensor(4.0).double(),
        )


def test_cumulative_sum_of_booleans_counts_them() -> None:
    mask = torch.tensor([[True, False, True], [True, True, True]])
    assert torch.equal(mask.to("npu").cumsum(-1).cpu(), mask.cumsum(-1))
