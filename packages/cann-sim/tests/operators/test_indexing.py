"""Reading and writing by index."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64]


def numbered(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape).remainder(120).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_selection_by_index_is_exact(dtype: torch.dtype, index: torch.dtype) -> None:
    values = numbered(5, 6, 4, dtype=dtype)
    rows = torch.tensor([4, 0, 0, 2]).to(index)
    device, device_rows = values.to("npu"), rows.to("npu")
    for dim in (0, 1, -1):
        limit = rows.remainder(values.shape[dim])
        expected = values.index_select(dim, limit)
        assert torch.equal(device.index_select(dim, limit.to("npu")).cpu(), expected)
    assert torch.equal(device[device_rows.long()].cpu(), values[rows.long()])
    assert torch.equal(device[:, device_rows.long()].cpu(), values[:, rows.long()])
    pair = (device_rows.long(), slice(None), device_rows.long().remainder(4))
    assert torch.equal(device[pair].cpu(), values[rows.long(), :, rows.long().remainder(4)])
    weight = values.view(30, 4)
    lookup = torch.nn.functional.embedding(rows.view(2, 2).to("npu"), weight.to("npu"))
    assert torch.equal(lookup.cpu(), weight[rows.view(2, 2).long()])


def test_selection_with_a_mask_and_with_nothing() -> None:
    values = numbered(4, 5)
    mask = values.remainder(3).eq(0)
    device = values.to("npu")
    assert torch.equal(device[mask.to("npu")].cpu(), values[mask])
    assert torch.equal(device.masked_select(mask.to("npu")).cpu(), values[mask])
    assert torch.equal(device[mask.to("npu") & False].cpu(), values[:0, 0])
    assert torch.equal(device[torch.empty(0, dtype=torch.long).to("npu")].cpu(), values[:0])
    assert torch.equal(mask.to("npu").nonzero().cpu(), mask.nonzero())
    assert torch.equal(torch.zeros(3).to("npu").nonzero().cpu(), torch.zeros(3).nonzero())


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_and_scatter_are_exact(dtype: torch.dtype) -> None:
    values = numbered(3, 5, 4, dtype=dtype)
    source = numbered(3, 2, 4, dtype=dtype).add(1)
    index = torch.tensor([4, 1]).view(1, 2, 1).expand(3, 2, 4)
    device, device_index = values.to("npu"), index.to("npu")
    assert torch.equal(device.gather(1, device_index).cpu(), values.gather(1, index))
    assert torch.equal(
        device.scatter(1, device_index, source.to("npu")).cpu(), values.scatter(1, index, source)
    )
    assert torch.equal(device.scatter(1, device_index, 7).cpu(), values.scatter(1, index, 7))
    assert torch.equal(
        device.scatter_add(1, device_index, source.to("npu")).cpu(),
        values.scatter_add(1, index, source),
    )
    reduced = device.scatter_reduce(1, device_index, source.to("npu"), "amax", include_self=True)
    assert torch.equal(
        reduced.cpu(), values.scatter_reduce(1, index, source, "amax", include_self=True)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_writing_by_index_is_exact(dtype: torch.dtype) -> None:
    values = numbered(5, 4, dtype=dtype)
    rows = torch.tensor([3, 0])
    update = numbered(2, 4, dtype=dtype).add(50)
    expected, device = values.clone(), values.to("npu")
    device[rows.to("npu")] = update.to("npu")
    expected[rows] = update
    device.index_copy_(0, rows.to("npu") + 1, update.to("npu"))
    expected.index_copy_(0, rows + 1, update)
    device[:, rows.to("npu")] = 9
    expected[:, rows] = 9
    device[1:3, ::2] = 5
    expected[1:3, ::2] = 5
    assert torch.equal(device.cpu(), expected)
    assert torch.equal(
        device.index_add(0, rows.to("npu"), update.to("npu")).cpu(),
        expected.index_add(0, rows, update),
    )
    assert torch.equal(
        device.index_fill(1, rows.to("npu"), 3).cpu(), expected.index_fill(1, rows, 3)
    )


def test_accumulating_write_adds_every_occurrence() -> None:
    rows = torch.tensor([1, 1, 0])
    device = torch.zeros(3, 2).to("npu")
    device.index_put_((rows.to("npu"),), torch.ones(3, 2).to("npu"), accumulate=True)
    assert device.cpu().tolist() == [[1, 1], [2, 2], [0, 0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_writes_broadcast_the_mask(dtype: torch.dtype) -> None:
    values = numbered(2, 3, 4, dtype=dtype)
    mask = torch.tensor([True, False, True, False])
    device = values.to("npu")
    assert torch.equal(device.masked_fill(mask.to("npu"), 3).cpu(), values.masked_fill(mask, 3))
    filled = device.masked_fill(mask.to("npu"), torch.tensor(4, dtype=dtype).to("npu"))
    assert torch.equal(filled.cpu(), values.masked_fill(mask, 4))
    source = numbered(2, 3, 4, dtype=dtype).add(1)
    scattered = device.masked_scatter(mask.to("npu"), source.to("npu"))
    assert torch.equal(scattered.cpu(), values.masked_scatter(mask, source))


def test_take_and_one_hot() -> None:
    values, index = numbered(3, 4), torch.tensor([5, 0, 11])
    assert torch.equal(values.to("npu").take(index.to("npu")).cpu(), values.take(index))
    assert torch.equal(
        torch.nn.functional.one_hot(index.to("npu"), 12).cpu(),
        torch.nn.functional.one_hot(index, 12),
    )


@settings(max_examples=30)
@given(
    rows=st.integers(1, 6),
    width=st.integers(1, 4),
    index=st.lists(st.integers(0, 5), max_size=8),
)
def test_selected_rows_equal_reference(rows: int, width: int, index: list[int]) -> None:
    values = numbered(rows, width)
    chosen = torch.tensor(index, dtype=torch.long).remainder(rows)
    assert torch.equal(values.to("npu")[chosen.to("npu")].cpu(), values[chosen])
    assert torch.equal(values.to("npu").index_select(0, chosen.to("npu")).cpu(), values[chosen])


def test_inplace_writes_equal_reference() -> None:
    values = numbered(3, 5)
    index = torch.tensor([[4, 1], [0, 2], [3, 3]])
    source = numbered(3, 2).add(1)
    device = values.to("npu")
    expected = values.clone()
    device.scatter_(1, index.to("npu"), source.to("npu"))
    expected.scatter_(1, index, source)
    device.scatter_(1, index[:, :1].to("npu"), 8.0)
    expected.scatter_(1, index[:, :1], 8.0)
    device.scatter_reduce_(1, index.to("npu"), source.to("npu"), "sum")
    expected.scatter_reduce_(1, index, source, "sum")
    device.index_fill_(0, torch.tensor([1]).to("npu"), 2.0)
    expected.index_fill_(0, torch.tensor([1]), 2.0)
    assert torch.equal(device.cpu(), expected)
    rows = torch.tensor([2, 0])
    copied = device.index_copy(0, rows.to("npu"), device[:2] + 1).cpu()
    assert torch.equal(copied, expected.index_copy(0, rows, expected[:2] + 1))
