"""Sorting and selection."""

from __future__ import annotations

import pytest
import torch

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64]


def shuffled(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    order = torch.randperm(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(2))
    return order.view(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_gives_values_and_indices(dtype: torch.dtype, descending: bool) -> None:
    values = shuffled(5, 20, dtype=dtype)
    for dim in (0, -1):
        result = values.to("npu").sort(dim, descending=descending)
        expected = values.sort(dim, descending=descending)
        assert torch.equal(result.values.cpu(), expected.values)
        assert torch.equal(result.indices.cpu(), expected.indices)
    assert torch.equal(
        values.to("npu").argsort(-1, descending=descending).cpu(),
        values.argsort(-1, descending=descending),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk_gives_values_and_indices(dtype: torch.dtype, largest: bool) -> None:
    values = shuffled(5, 20, dtype=dtype)
    for k in (1, 3, 20):
        result = values.to("npu").topk(k, -1, largest=largest)
        expected = values.topk(k, -1, largest=largest)
        assert torch.equal(result.values.cpu(), expected.values)
        assert torch.equal(result.indices.cpu(), expected.indices)


def test_topk_of_more_than_there_are_is_refused() -> None:
    with pytest.raises(RuntimeError, match="k"):
        torch.arange(3.0).to("npu").topk(4)


def test_selection_among_sorted_values() -> None:
    values = torch.tensor([4, 1, 4, 2, 1])
    unique, inverse, counts = torch.unique(
        values.to("npu"), return_inverse=True, return_counts=True
    )
    assert unique.cpu().tolist() == [1, 2, 4]
    assert inverse.cpu().tolist() == [2, 0, 2, 1, 0]
    assert counts.cpu().tolist() == [2, 1, 2]
    boundaries = torch.tensor([1.0, 2.0, 4.0])
    wanted = torch.tensor([0.5, 2.0, 9.0])
    for right in (False, True):
        result = torch.searchsorted(boundaries.to("npu"), wanted.to("npu"), right=right).cpu()
        assert torch.equal(result, torch.searchsorted(boundaries, wanted, right=right))
    assert values.to("npu").float().kthvalue(2).values.item() == 1
    assert torch.equal(torch.bincount(values.to("npu").int()).cpu(), torch.bincount(values))
    assert torch.isin(values.to("npu"), torch.tensor([2, 4]).to("npu")).tolist() == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_selection_with_scalars() -> None:
    boundaries = torch.tensor([1.0, 2.0, 4.0])
    assert torch.searchsorted(boundaries.to("npu"), 2.0, right=True).item() == 2
    assert torch.isin(boundaries.to("npu"), 2.0).tolist() == [False, True, False]
    assert torch.isin(2.0, boundaries.to("npu")).item()
    assert not torch.isin(3.0, boundaries.to("npu")).item()
