"""A fake device whose work runs only where, and in the order that, the test says."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import FakeDevice
from npu_graph_runtime.errors import DeadlockError

if TYPE_CHECKING:
    from npu_graph_runtime.device import Stream


def test_work_of_a_held_device_runs_only_in_advance() -> None:
    device = FakeDevice(is_held=True)
    stream, values = device.create_stream(), torch.zeros(2)
    with device.use_stream(stream):
        values.add_(1)
        values.add_(1)
    assert values.tolist() == [0.0, 0.0]
    assert not stream.query()
    assert device.advance(Random(0), 1) == 1
    assert values.tolist() == [1.0, 1.0]
    assert device.advance(Random(0)) == 1
    assert values.tolist() == [2.0, 2.0]
    assert device.is_idle
    assert device.num_synchronizations == 0


def test_synchronisation_runs_all_work() -> None:
    device = FakeDevice(is_held=True, has_launch_queue=True)
    values = torch.zeros(2)
    with device.use_stream(device.create_stream()):
        values.add_(1)
    device.synchronize()
    assert values.tolist() == [1.0, 1.0]


def _orders(seeds: range) -> set[tuple[float, ...]]:
    """Return the final values of a value that two streams write without an order."""
    seen = set()
    for seed in seeds:
        device, value = FakeDevice(is_held=True), torch.ones(1)
        for factor in (2.0, 3.0):
            with device.use_stream(device.create_stream()):
                value.mul_(factor)
                value.add_(1)
        device.advance(Random(seed))
        seen.add(tuple(value.tolist()))
    return seen


def test_streams_interleave_by_seed() -> None:
    # 2x+1 then 3x+1, the other way round, and all that is between them.
    assert _orders(range(60)) == {(10.0,), (9.0,), (8.0,)}
    assert _orders(range(5)) == _orders(range(5))


def test_waits_hold_in_every_order() -> None:
    for seed in range(30):
        device, value = FakeDevice(is_held=True), torch.ones(1)
        first, second = device.create_stream(), device.create_stream()
        with device.use_stream(first):
            value.mul_(2)
        second.wait_stream(first)
        with device.use_stream(second):
            value.add_(1)
        device.advance(Random(seed))
        assert value.tolist() == [3.0]


def test_advance_ends_where_nothing_can_run_and_the_next_synchronisation_says_why() -> None:
    device = FakeDevice(is_held=True)
    stream, event = device.create_stream(), device.create_external_event()
    event.wait(stream)
    assert device.advance(Random(0), 10) == 0
    assert not device.is_idle
    with pytest.raises(DeadlockError, match="external event that was never recorded"):
        device.synchronize()


def _reached_in_time(device: FakeDevice, seed: int, *, flushes: bool) -> bool:
    """Make a direct stream wait for an event of another, and return whether it did."""
    queued, direct = device.create_stream(), device.create_direct_stream()
    value, seen = torch.zeros(1), torch.zeros(1)
    with device.use_stream(queued):
        value.add_(1)
    event = queued.record_event()
    if flushes:
        device.flush_launches()
    event.wait(direct)
    with device.use_stream(direct):
        seen.copy_(value)
    device.advance(Random(seed))
    return seen.tolist() == [1.0]


def test_a_direct_stream_overtakes_the_launch_queue() -> None:
    outcomes = {
        flushes: {
            _reached_in_time(FakeDevice(is_held=True, has_launch_queue=True), seed, flushes=flushes)
            for seed in range(20)
        }
        for flushes in (False, True)
    }
    assert outcomes[True] == {True}
    assert False in outcomes[False]


def test_an_event_in_the_launch_queue_is_not_reached() -> None:
    device = FakeDevice(is_held=True, has_launch_queue=True)
    event = device.create_stream().record_event()
    assert not event.query()
    event.synchronize()
    assert event.query()


@pytest.mark.parametrize("has_launch_queue", [False, True])
def test_a_replay_flushes_the_launch_queue(has_launch_queue: bool) -> None:
    device = FakeDevice(is_held=True, has_launch_queue=has_launch_queue)
    values, graph = torch.zeros(2), device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool()):
        values.add_(1)
    graph.replay()
    stream: Stream = device.default_stream
    assert not stream.query()
    device.advance(Random(1))
    assert values.tolist() == [1.0, 1.0]


def test_a_launch_queue_of_a_device_that_is_not_held_is_refused() -> None:
    with pytest.raises(ValueError, match="is_held=True"):
        FakeDevice(has_launch_queue=True)
