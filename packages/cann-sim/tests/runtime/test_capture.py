"""Capture: recorded work, several streams, and the error codes of rejected calls."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETER_INVALID = 107000
CAPTURE_DEPENDENCY = 107024
STREAM_UNJOINED = 107025
STREAM_CAPTURED = 107027
EVENT_CAPTURED = 107028
STREAM_NOT_CAPTURED = 107029
MODE_NOT_SUPPORTED = 107030
DEFAULT_STREAM_IMPLICIT = 107031
CAPTURE_CONFLICT = 107032
CAPTURE_UNMATCHED = 107036
CAPTURE_INVALIDATED = 507903
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


class Capture:
    """A capture through the C interface that always ends."""

    def __init__(self, acl: Any, stream: Any, mode: int = GLOBAL) -> None:
        self.acl = acl
        self.handle = stream.npu_stream
        assert acl("aclmdlRICaptureBegin", self.handle, ctypes.c_int(mode)) == 0

    def end(self) -> int:
        """End it, throw the graph away, and return the code of the end."""
        graph = ctypes.c_void_p()
        code: int = self.acl("aclmdlRICaptureEnd", self.handle, ctypes.byref(graph))
        if graph.value:
            assert self.acl("aclmdlRIDestroy", graph) == 0
        return code


@pytest.fixture
def stream(npu: Any) -> Any:
    return npu.Stream()


@pytest.fixture
def capture(acl: Any, stream: Any) -> Iterator[Capture]:
    running = Capture(acl, stream)
    yield running
    running.end()


@pytest.fixture(autouse=True)
def _device_usable_afterwards(npu: Any) -> Iterator[None]:
    yield
    npu.synchronize()
    assert (torch.ones(1).to("npu:0") + 1.0).cpu().item() == 2.0


def test_capture_does_not_run_what_it_records(npu: Any) -> None:
    value = torch.ones(3).to("npu:0")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        value.add_(1.0)
    assert torch.equal(value.cpu(), torch.ones(3))
    graph.replay()
    graph.replay()
    npu.synchronize()
    assert torch.equal(value.cpu(), torch.full((3,), 3.0))


def test_capture_of_several_streams_keeps_their_order(npu: Any) -> None:
    value, side_value = torch.ones(1).to("npu:0"), torch.ones(1).to("npu:0")
    side = npu.Stream()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        main = npu.current_stream()
        value.mul_(3.0)
        side.wait_stream(main)
        with npu.stream(side):
            side_value.copy_(value)
            side_value.add_(1.0)
        main.wait_stream(side)
        value.copy_(side_value)
    for expected in (4.0, 13.0, 40.0):
        graph.replay()
        npu.synchronize()
        assert value.cpu().item() == expected


@pytest.mark.parametrize(
    ("function", "extra"),
    [
        ("aclrtSynchronizeStream", ()),
        ("aclrtSynchronizeStreamWithTimeout", (ctypes.c_int(100),)),
        ("aclrtStreamQuery", (ctypes.byref(ctypes.c_int()),)),
        ("aclrtDestroyStream", ()),
        ("aclmdlRICaptureBegin", (ctypes.c_int(0),)),
    ],
)
def test_capturing_stream_refuses_with_its_code(
    acl: Any, capture: Capture, function: str, extra: tuple[Any, ...]
) -> None:
    assert acl(function, capture.handle, *extra) == STREAM_CAPTURED
    assert function in acl.message()
    assert capture.end() == 0


def test_device_synchronisation_while_capturing_is_refused(acl: Any, capture: Capture) -> None:
    assert acl("aclrtSynchronizeDevice") == STREAM_CAPTURED


def test_synchronisation_in_a_torch_capture_raises_the_code(npu: Any) -> None:
    value = torch.ones(1).to("npu:0")
    with pytest.raises(RuntimeError, match=r"107027|107030"), npu.graph(npu.NPUGraph()):
        value.cpu()


def test_default_stream_cannot_be_captured(acl: Any) -> None:
    assert acl("aclmdlRICaptureBegin", None, ctypes.c_int(0)) == PARAMETER_INVALID


def test_end_without_a_capture_is_refused(acl: Any, stream: Any) -> None:
    graph = ctypes.c_void_p()
    code = acl("aclmdlRICaptureEnd", stream.npu_stream, ctypes.byref(graph))
    assert code == STREAM_NOT_CAPTURED


@pytest.mark.parametrize(
    ("capture_mode", "thread_mode", "code"),
    [
        (GLOBAL, GLOBAL, MODE_NOT_SUPPORTED),
        (GLOBAL, THREAD_LOCAL, MODE_NOT_SUPPORTED),
        (GLOBAL, RELAXED, 0),
        (THREAD_LOCAL, GLOBAL, MODE_NOT_SUPPORTED),
        (THREAD_LOCAL, RELAXED, 0),
        (RELAXED, GLOBAL, 0),
        (RELAXED, THREAD_LOCAL, 0),
    ],
)
def test_blocking_set_of_memory_follows_the_capture_modes(
    acl: Any, stream: Any, capture_mode: int, thread_mode: int, code: int
) -> None:
    value = torch.ones(4).to("npu:0")
    running = Capture(acl, stream, capture_mode)
    exchanged = ctypes.c_int(thread_mode)
    assert acl("aclmdlRICaptureThreadExchangeMode", ctypes.byref(exchanged)) == 0
    size = ctypes.c_size_t(16)
    found = acl("aclrtMemset", value.data_ptr(), size, ctypes.c_int(0), size)
    assert acl("aclmdlRICaptureThreadExchangeMode", ctypes.byref(exchanged)) == 0
    assert running.end() == 0
    assert found == code
    assert value.cpu()[0].item() == (1.0 if code else 0.0)


@pytest.mark.parametrize(("mode", "code"), [(GLOBAL, MODE_NOT_SUPPORTED), (THREAD_LOCAL, 0)])
def test_blocking_set_of_memory_on_another_thread_follows_the_capture_mode(
    acl: Any, stream: Any, mode: int, code: int
) -> None:
    value = torch.ones(4).to("npu:0")
    running = Capture(acl, stream, mode)
    found: list[int] = []
    size = ctypes.c_size_t(16)

    def set_memory() -> None:
        found.append(acl("aclrtMemset", value.data_ptr(), size, ctypes.c_int(0), size))

    thread = threading.Thread(target=set_memory)
    thread.start()
    thread.join()
    assert running.end() == 0
    assert found == [code]


def test_copy_of_pageable_memory_cannot_be_captured(acl: Any, capture: Capture) -> None:
    value = torch.ones(4)
    target = ctypes.c_void_p()
    size = ctypes.c_size_t(16)
    assert acl("aclrtMalloc", ctypes.byref(target), size, ctypes.c_int(0)) == 0
    arguments = (target, size, value.data_ptr(), size, ctypes.c_int(1), capture.handle)
    assert acl("aclrtMemcpyAsync", *arguments) == PARAMETER_INVALID
    assert "pinned" in acl.message()
    assert acl("aclrtFree", target) == 0


def test_copy_from_pinned_memory_reads_it_at_every_replay(npu: Any) -> None:
    source = torch.zeros(4).pin_memory()
    value = torch.zeros(4).to("npu:0")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        value.copy_(source, non_blocking=True)
    for number in (1.0, 2.0):
        source.fill_(number)
        graph.replay()
        npu.synchronize()
        assert torch.equal(value.cpu(), torch.full((4,), number))


@pytest.mark.parametrize("function", ["aclrtQueryEventStatus", "aclrtSynchronizeEvent"])
def test_event_of_a_capture_is_refused_to_the_host(
    npu: Any, stream: Any, acl: Any, function: str
) -> None:
    event = npu.Event()
    event.record(stream)
    stream.synchronize()
    running = Capture(acl, stream)
    recorded = acl("aclrtRecordEvent", event.npu_event, stream.npu_stream)
    code = acl(function, event.npu_event, ctypes.byref(ctypes.c_int()))
    assert running.end() == 0
    assert (recorded, code) == (0, EVENT_CAPTURED)
    assert acl(function, event.npu_event, ctypes.byref(ctypes.c_int())) == 0


def test_wait_for_an_event_recorded_outside_is_refused(npu: Any, acl: Any, stream: Any) -> None:
    event = npu.Event()
    event.record(npu.current_stream())
    npu.synchronize()
    running = Capture(acl, stream)
    code = acl("aclrtStreamWaitEvent", stream.npu_stream, event.npu_event)
    assert code == CAPTURE_DEPENDENCY
    assert running.end() == 0


def join(acl: Any, npu: Any, origin: Any, side: Any) -> Any:
    """Make the side stream part of the capture of the origin."""
    event = npu.Event()
    event.record(side)
    side.synchronize()
    assert acl("aclrtRecordEvent", event.npu_event, origin.npu_stream) == 0
    assert acl("aclrtStreamWaitEvent", side.npu_stream, event.npu_event) == 0
    return event


def test_side_stream_without_a_last_record_is_unjoined(npu: Any, acl: Any, stream: Any) -> None:
    running = Capture(acl, stream, RELAXED)
    event = join(acl, npu, stream, npu.Stream())
    assert running.end() == STREAM_UNJOINED
    assert "is not an event record" in acl.message()
    del event


def test_side_stream_that_nobody_waits_for_is_unjoined(npu: Any, acl: Any, stream: Any) -> None:
    running = Capture(acl, stream, RELAXED)
    side = npu.Stream()
    event = join(acl, npu, stream, side)
    assert acl("aclrtRecordEvent", event.npu_event, side.npu_stream) == 0
    assert running.end() == STREAM_UNJOINED
    assert "no captured stream waits" in acl.message()


def test_side_stream_cannot_end_the_capture(npu: Any, acl: Any, stream: Any) -> None:
    running = Capture(acl, stream, RELAXED)
    side = npu.Stream()
    event = join(acl, npu, stream, side)
    graph = ctypes.c_void_p()
    code = acl("aclmdlRICaptureEnd", side.npu_stream, ctypes.byref(graph))
    assert code == CAPTURE_UNMATCHED
    assert acl("aclrtRecordEvent", event.npu_event, side.npu_stream) == 0
    assert acl("aclrtStreamWaitEvent", stream.npu_stream, event.npu_event) == 0
    assert running.end() == 0


def test_default_stream_that_waits_for_a_captured_event_invalidates(
    npu: Any, acl: Any, stream: Any
) -> None:
    event = npu.Event()
    event.record(stream)
    stream.synchronize()
    running = Capture(acl, stream, RELAXED)
    assert acl("aclrtRecordEvent", event.npu_event, stream.npu_stream) == 0
    code = acl("aclrtStreamWaitEvent", None, event.npu_event)
    assert code == DEFAULT_STREAM_IMPLICIT
    assert running.end() == CAPTURE_INVALIDATED


def test_event_of_another_capture_invalidates_both(npu: Any, acl: Any, stream: Any) -> None:
    other = npu.Stream()
    event = npu.Event()
    event.record(stream)
    stream.synchronize()
    first, second = Capture(acl, stream, RELAXED), Capture(acl, other, RELAXED)
    assert acl("aclrtRecordEvent", event.npu_event, stream.npu_stream) == 0
    code = acl("aclrtStreamWaitEvent", other.npu_stream, event.npu_event)
    assert code == CAPTURE_CONFLICT
    assert first.end() == CAPTURE_INVALIDATED
    assert second.end() == CAPTURE_INVALIDATED
