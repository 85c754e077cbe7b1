"""Streams: order within one, concurrency between several, their limit."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
import torch

ARGUMENT_BYTES = 6208  # of a captured kernel


def test_stream_runs_its_tasks_in_order(npu: Any) -> None:
    stream = npu.Stream()
    value = torch.zeros(1).to("npu:0")
    with npu.stream(stream):
        for _ in range(200):
            value.mul_(2.0)
            value.add_(1.0)
            value.sub_(value)
            value.add_(3.0)
    stream.synchronize()
    assert value.cpu().item() == 3.0


def test_stream_that_waits_leaves_the_others_running(npu: Any) -> None:
    gate = npu.ExternalEvent()
    waiting, running = npu.Stream(), npu.Stream()
    held = torch.zeros(1).to("npu:0")
    other = torch.zeros(1).to("npu:0")
    npu.synchronize()
    gate.wait(waiting)
    with npu.stream(waiting):
        held.add_(1.0)
    with npu.stream(running):
        other.add_(1.0)
    running.synchronize()
    assert not waiting.query()
    gate.record(running)
    waiting.synchronize()
    assert waiting.query()
    assert (held.cpu().item(), other.cpu().item()) == (1.0, 1.0)


def test_stream_waits_for_another_stream(npu: Any) -> None:
    gate = npu.ExternalEvent()
    first, second = npu.Stream(), npu.Stream()
    value = torch.zeros(1).to("npu:0")
    npu.synchronize()
    gate.wait(first)
    with npu.stream(first):
        value.add_(2.0)
    second.wait_stream(first)
    with npu.stream(second):
        value.mul_(10.0)
    assert not second.query()
    gate.record(npu.current_stream())
    second.synchronize()
    assert value.cpu().item() == 20.0


def test_stream_priorities_are_accepted(npu: Any) -> None:
    stream = npu.Stream(priority=-1)
    with npu.stream(stream):
        value = torch.ones(3).to("npu:0") + 1.0
    stream.synchronize()
    assert torch.equal(value.cpu(), torch.full((3,), 2.0))


def test_stream_beyond_the_limit_is_refused_with_its_code(run_forked: Any) -> None:
    done = run_forked(
        """
import ctypes, cann_sim
cann_sim.activate()
acl = ctypes.CDLL("libascendcl.so")
acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert acl.aclrtSetDevice(0) == 0
stream = ctypes.c_void_p()
print([acl.aclrtCreateStream(ctypes.byref(stream)) for _ in range(4)])
print(acl.aclGetRecentErrMsg().decode())
""",
        environment={"CANN_SIM_STREAMS": "3"},
    )
    assert "[0, 0, 0, 207008]" in done.output
    assert "insufficient" in done.output


def free_streams(acl: Any) -> int:
    count = ctypes.c_uint32()
    assert acl("aclrtGetStreamAvailableNum", ctypes.byref(count)) == 0
    return count.value


def test_number_of_free_streams_is_reported(npu: Any, acl: Any) -> None:
    before = free_streams(acl)
    stream = ctypes.c_void_p()
    assert acl("aclrtCreateStream", ctypes.byref(stream)) == 0
    assert free_streams(acl) == before - 1
    assert acl("aclrtDestroyStream", stream) == 0
    assert free_streams(acl) == before


def test_captured_graph_takes_a_stream_and_memory_until_it_is_destroyed(npu: Any, acl: Any) -> None:
    # torch_npu makes a pool of streams with the first of them.
    stream = npu.Stream()
    value = torch.zeros(1, device="npu:0")
    npu.synchronize()
    # As the start of a capture does: leftovers of earlier tests would be counted.
    gc.collect()
    npu.empty_cache()
    streams, (memory, _) = free_streams(acl), npu.mem_get_info(0)
    graph = npu.NPUGraph()
    with npu.graph(graph, stream=stream):
        for _ in range(10):
            value.add_(1.0)
    assert free_streams(acl) == streams - 1
    assert memory - npu.mem_get_info(0)[0] == 10 * ARGUMENT_BYTES
    graph.reset()
    assert (free_streams(acl), npu.mem_get_info(0)[0]) == (streams, memory)


@pytest.mark.parametrize(
    ("kernels", "groups", "waits", "streams"),
    [
        (2016, 0, 0, 1),
        (2017, 0, 0, 2),
        (9, 223, 0, 1),
        (10, 223, 0, 2),
        (1, 0, 504, 2),
        (5000, 0, 0, 3),
    ],
)
def test_capture_continues_on_a_further_stream_near_the_end_of_a_queue(
    npu: Any, acl: Any, kernels: int, groups: int, waits: int, streams: int
) -> None:
    """A queue has 2,048 entries, of which 32 stay free; groups take 8 and a kernel, waits 4."""
    stream = npu.Stream()
    value, word = torch.zeros(1, device="npu:0"), torch.zeros(8, dtype=torch.int64, device="npu:0")
    npu.synchronize()
    before = free_streams(acl)
    graph = npu.NPUGraph()
    with npu.graph(graph, stream=stream):
        for _ in range(groups):
            npu.graph_task_group_begin(stream)
            value.add_(1.0)
            npu.graph_task_group_end(stream)
        handle = stream.npu_stream
        for _ in range(waits):
            assert acl("aclrtValueWait", word.data_ptr(), ctypes.c_uint64(0), 1, handle) == 0
        for _ in range(kernels):
            value.add_(1.0)
    assert before - free_streams(acl) == streams
    graph.replay()
    npu.synchronize()
    assert value.cpu().item() == kernels + groups
    graph.reset()
    assert free_streams(acl) == before


@pytest.mark.parametrize(("turns", "streams"), [(403, 2), (404, 4)])
def test_event_wait_in_a_capture_takes_four_entries(
    npu: Any, acl: Any, turns: int, streams: int
) -> None:
    """Each turn takes 5 entries of each of the two streams: a record, and a wait of 4."""
    first, second = npu.Stream(), npu.Stream()
    npu.synchronize()
    before = free_streams(acl)
    graph = npu.NPUGraph()
    with npu.graph(graph, stream=first):
        for _ in range(turns):
            second.wait_stream(first)
            first.wait_stream(second)
    assert before - free_streams(acl) == streams
    graph.replay()
    npu.synchronize()
    graph.reset()


def test_capture_without_a_free_further_stream_is_refused_and_released(
    run_forked: Any,
) -> None:
    done = run_forked(
        """
import ctypes, cann_sim
cann_sim.activate()
import torch, torch_npu
value = torch.zeros(1, device="npu:0")
acl = ctypes.CDLL("libascendcl.so")
stream, count, spare = torch.npu.Stream(), ctypes.c_uint32(), ctypes.c_void_p()
torch.npu.synchronize()

def left():
    assert acl.aclrtGetStreamAvailableNum(ctypes.byref(count)) == 0
    return count.value

while left() > 1:
    assert acl.aclrtCreateStream(ctypes.byref(spare)) == 0
graph = torch.npu.NPUGraph()
try:
    with torch.npu.graph(graph, stream=stream):
        for _ in range(2100):
            value.add_(1.0)
except RuntimeError as error:
    print("refused", "no stream is left" in str(error) or "507903" in str(error))
print("left", left())
""",
        environment={"CANN_SIM_STREAMS": "64", "TASK_QUEUE_ENABLE": "0"},
    )
    assert "refused True" in done.output
    assert "left 1" in done.output


def test_stream_that_was_destroyed_is_refused(acl: Any) -> None:
    import ctypes

    stream = ctypes.c_void_p()
    assert acl("aclrtCreateStream", ctypes.byref(stream)) == 0
    assert acl("aclrtDestroyStream", stream) == 0
    assert acl("aclrtSynchronizeStream", stream) == 107003
    assert "was destroyed" in acl.message()


@pytest.mark.parametrize("enable", ["0", "1"])
def test_deadlock_is_named_and_leaves_the_process_usable(run_forked: Any, enable: str) -> None:
    done = run_forked(
        """
import ctypes
import cann_sim
cann_sim.activate()
import torch, torch_npu
event = torch.npu.ExternalEvent()
stream = torch.npu.Stream()
number = ctypes.c_int32()
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtStreamGetId(ctypes.c_void_p(stream.npu_stream), ctypes.byref(number))
stream_id = number.value
event.wait(stream)
try:
    stream.synchronize()
except RuntimeError as error:
    assert "507046" in str(error) and "deadlock" in str(error), error
    assert f"stream {stream_id} waits for the external event" in str(error), error
    assert "which was never recorded" in str(error), error
event.record(torch.npu.current_stream())
stream.synchronize()
print("usable", (torch.ones(1).npu() + 1).cpu().item())
""",
        environment={"CANN_SIM_DEADLOCK_SECONDS": "0.5", "TASK_QUEUE_ENABLE": enable},
    )
    assert "usable 2.0" in done.output, done.errors


def test_limit_of_operators_is_accepted_and_answered(npu: Any) -> None:
    npu.set_op_timeout_ms(1000)
    actual = ctypes.c_uint64()
    library = ctypes.CDLL("libascendcl.so")
    assert library.aclrtSetOpExecuteTimeOutV2(ctypes.c_uint64(1500), ctypes.byref(actual)) == 0
    assert actual.value == 1500
    assert library.aclrtSetOpExecuteTimeOutV2(ctypes.c_uint64(1500), None) == 107000
