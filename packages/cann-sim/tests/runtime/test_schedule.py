"""Fuzzed schedules: decided by the seed, the same again for it, and different for others."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from cann_sim.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = 12


@pytest.fixture(autouse=True)
def _free_afterwards(npu: Any) -> Iterator[None]:
    npu.synchronize()
    yield
    npu.synchronize()
    cann_sim.set_schedule("free")


def interleaving(npu: Any, streams: list[Any], seed: int) -> float:
    """Return a number that encodes the order in which two streams ran their tasks."""
    value = torch.ones(1, device="npu:0", dtype=torch.float32)
    # What the first call of an operator loads takes time, and a silent host is overtaken.
    value.mul_(1.0).add_(0.0)
    npu.synchronize()
    with cann_sim.fuzzed_schedule(seed):
        for _ in range(5):
            with npu.stream(streams[0]):
                value.mul_(2.0)
            with npu.stream(streams[1]):
                value.add_(1.0)
        npu.synchronize()
    return float(value.cpu().item())


def test_schedule_with_a_seed_interleaves_in_the_same_way_again(npu: Any) -> None:
    streams = [npu.Stream(), npu.Stream()]
    first = [interleaving(npu, streams, seed) for seed in range(SEEDS)]
    assert [interleaving(npu, streams, seed) for seed in range(SEEDS)] == first


def test_schedule_with_other_seeds_interleaves_differently(npu: Any) -> None:
    streams = [npu.Stream(), npu.Stream()]
    assert len({interleaving(npu, streams, seed) for seed in range(SEEDS)}) > SEEDS // 2


def test_schedule_runs_the_side_branches_of_a_graph_in_any_order(npu: Any) -> None:
    value = torch.ones(1, device="npu:0")
    graph, side = npu.NPUGraph(), npu.Stream()
    with npu.graph(graph):
        main = npu.current_stream()
        side.wait_stream(main)
        for _ in range(4):
            value.mul_(2.0)
            with npu.stream(side):
                value.add_(1.0)
        main.wait_stream(side)
    results = []
    for seed in (*range(SEEDS), *range(SEEDS)):
        value.fill_(1.0)
        npu.synchronize()
        with cann_sim.fuzzed_schedule(seed):
            graph.replay()
            npu.synchronize()
        results.append(float(value.cpu().item()))
    assert results[:SEEDS] == results[SEEDS:]
    assert len(set(results)) > SEEDS // 3


def test_schedule_keeps_the_order_of_events(npu: Any) -> None:
    producer, consumer = npu.Stream(), npu.Stream()
    for seed in range(SEEDS):
        value, seen = torch.zeros(1, device="npu:0"), torch.zeros(1, device="npu:0")
        npu.synchronize()
        with cann_sim.fuzzed_schedule(seed):
            with npu.stream(producer):
                value.add_(20.0).add_(1.0).mul_(2.0)
                event = producer.record_event()
            with npu.stream(consumer):
                consumer.wait_event(event)
                seen.copy_(value)
            event.synchronize()
            npu.synchronize()
        assert seen.cpu().item() == 42.0


def test_schedule_continues_while_the_host_only_queries(npu: Any) -> None:
    stream = npu.Stream()
    with cann_sim.fuzzed_schedule(5):
        with npu.stream(stream):
            torch.ones(4, device="npu:0").mul_(2.0)
            event = stream.record_event()
        # torch_npu's task queue needs its time until the record comes to the runtime.
        end = time.monotonic() + 20
        while not event.query():
            assert time.monotonic() < end
        npu.synchronize()


def test_schedule_lets_host_functions_wait_for_the_host(npu: Any, acl: Any) -> None:
    called = threading.Event()
    allowed = threading.Event()

    def wait(_: Any) -> None:
        called.set()
        allowed.wait(20)

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)
    stream = npu.Stream()
    with cann_sim.fuzzed_schedule(3):
        address = ctypes.cast(function, ctypes.c_void_p)
        assert acl("aclrtLaunchHostFunc", stream.npu_stream, address, None) == 0
        allowed.set()
        stream.synchronize()
    assert called.is_set()


@pytest.mark.parametrize("text", ["fuzz", "fuzz:", "fuzz:-1", "fuzz:1x", "slow"])
def test_schedule_of_another_form_is_refused(npu: Any, text: str) -> None:
    del npu
    with pytest.raises(SettingError, match=r"expected 'free' or 'fuzz:<seed>'.*found"):
        cann_sim.set_schedule(text)


def test_schedule_cannot_change_while_the_device_is_busy(npu: Any, acl: Any) -> None:
    stream, event = npu.Stream(), npu.ExternalEvent()
    event.wait(stream)
    # With the task queue the wait may not have come to the runtime yet.
    status = (ctypes.c_uint32 * 1)()
    while acl("aclrtStreamQuery", stream.npu_stream, status) or not status[0]:
        time.sleep(0.001)
    with pytest.raises(SettingError, match="expected an idle device"):
        cann_sim.set_schedule("fuzz:1")
    event.record(npu.current_stream())
    npu.synchronize()


def test_schedule_of_the_environment_is_used(run_forked: Any) -> None:
    program = "import cann_sim; cann_sim.activate(); print(cann_sim.schedule())"
    done = run_forked(program, environment={"CANN_SIM_SCHEDULE": "fuzz:17"})
    assert "fuzz:17" in done.output, done.errors


def test_deadlock_under_a_fuzzed_schedule_is_found(run_forked: Any) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
event.wait(stream)
try:
    stream.synchronize()
except RuntimeError as error:
    print(error)
""",
        environment={"CANN_SIM_SCHEDULE": "fuzz:4", "CANN_SIM_DEADLOCK_SECONDS": "0.2"},
    )
    assert "507046" in done.output, done.errors
    assert "which was never recorded" in done.output
