"""The allocator's history belongs to one reader, and is off when nobody reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime.planning import CapturePlanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice
    from npu_graph_runtime.device import AllocatorRecord


def is_on(npu: NpuDevice) -> bool:
    history = npu.begin_history()
    if history is not None:
        history.end()
    return history is None


def actions_at(address: int, record: AllocatorRecord | None) -> list[tuple[str, int]]:
    assert record is not None
    return [
        (each["action"], each["size"])
        for each in record.entries
        if each.get("addr") == address and not each["action"].startswith("segment")
    ]


def test_history_has_what_was_done_since_it_was_taken(npu: NpuDevice) -> None:
    history = npu.begin_history()
    assert history is not None
    tensor = torch.empty(3000, dtype=torch.uint8, device=npu.torch_device)
    first = history.take()
    address = tensor.data_ptr()
    del tensor
    second = history.take()
    history.end()

    assert actions_at(address, first) == [("alloc", 3000)]
    assert actions_at(address, second) == [("free_requested", 3000), ("free_completed", 3000)]


def test_second_reader_is_refused_and_one_that_is_dropped_ends(npu: NpuDevice) -> None:
    history = npu.begin_history()
    assert history is not None
    assert is_on(npu)
    del history
    assert not is_on(npu)


@pytest.fixture
def own_history() -> Iterator[None]:
    from torch_npu.npu import memory

    memory._record_memory_history(context=None, stacks="python")
    yield
    memory._record_memory_history(enabled=None)


@pytest.mark.usefixtures("own_history")
def test_history_of_the_user_is_left_as_it_is(npu: NpuDevice) -> None:
    torch.empty(5000, dtype=torch.uint8, device=npu.torch_device)
    planner = CapturePlanner(npu, (1,))
    assert planner.next_size() == 1
    planner.captured(1)
    assert planner.next_size() is None

    entries = npu.memory_snapshot()["device_traces"][npu.index]
    assert 5000 in [each["size"] for each in entries]


def test_planner_ends_its_history_when_nothing_is_left_and_when_it_is_dropped(
    npu: NpuDevice,
) -> None:
    planner = CapturePlanner(npu, (1,))
    assert is_on(npu)
    assert planner.next_size() == 1
    planner.captured(1)
    assert planner.next_size() is None
    assert not is_on(npu)

    planner = CapturePlanner(npu, (1,))
    assert is_on(npu)
    del planner
    assert not is_on(npu)
