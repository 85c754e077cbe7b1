"""Events, side streams and the end of a capture."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import DEVICE_TO_HOST, GLOBAL, RELAXED, THREAD_LOCAL, Cann, Handle
from npu_graph_check.cann.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look


def event_questions(look: Look) -> None:
    """Wait for, and query, an event that was recorded in a capture."""
    cann = Cann()
    stream, event, state = cann.create_stream(), cann.create_event(), ctypes.c_int()
    with cann.capturing(stream):
        cann.ok("aclrtRecordEvent", event, stream)
        look.expect("aclrtSynchronizeEvent", cann.call("aclrtSynchronizeEvent", event), 107028)
        query = cann.call("aclrtQueryEventStatus", event, ctypes.byref(state))
        look.expect("aclrtQueryEventStatus", query, 107028)


def blocking_copies(look: Look) -> None:
    """Make a blocking copy on the capturing thread and on another, in each mode of a capture."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    host = ctypes.create_string_buffer(16)

    def copy() -> int:
        given = (ctypes.byref(host), 16, values.address, 16, DEVICE_TO_HOST)
        return cann.call("aclrtMemcpy", *given)

    refused = 107030
    for mode, name, here, there in (
        (GLOBAL, "global", refused, refused),
        (THREAD_LOCAL, "thread local", refused, 0),
        (RELAXED, "relaxed", 0, 0),
    ):
        with cann.capturing(stream, mode):
            look.expect(f"mode {name}, the thread that captures", copy(), here)
            look.expect(f"mode {name}, another thread", _on_another_thread(cann, copy), there)
    lifted = ctypes.c_int(RELAXED)
    with cann.capturing(stream, GLOBAL):
        cann.ok("aclmdlRICaptureThreadExchangeMode", ctypes.byref(lifted))
        look.expect("mode global, lifted for the thread", copy(), 0)
        cann.ok("aclmdlRICaptureThreadExchangeMode", ctypes.byref(lifted))


def pageable_copy(look: Look) -> None:
    """Capture an asynchronous copy of pageable host memory."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    host = ctypes.create_string_buffer(16)
    given = (ctypes.byref(host), 16, values.address, 16, DEVICE_TO_HOST)
    with cann.capturing(stream):
        captured = cann.call("aclrtMemcpyAsync", *given, stream)
        look.expect("aclrtMemcpyAsync in the capture", captured, 107000)
    other = cann.create_stream()
    with cann.capturing(stream):
        look.expect(
            "on another stream, under the capture",
            cann.call("aclrtMemcpyAsync", *given, other),
            107041,
        )


def default_stream_joins(look: Look) -> None:
    """Let the default stream wait for an event that was recorded in a capture."""
    cann = Cann()
    stream, event = cann.create_stream(), cann.create_event()
    cann.begin_capture(stream)
    cann.ok("aclrtRecordEvent", event, stream)
    look.expect(
        "the wait of the default stream", cann.call("aclrtStreamWaitEvent", None, event), 107031
    )
    look.expect("the state of the capture (2: invalid)", cann.capture_status(stream), 2)
    look.expect("the end of the capture", cann.end_status(stream), 507903)


def joins_by_event(look: Look) -> None:
    """Let another stream join a capture by an event, and replay both."""
    cann = Cann()
    main, side = cann.create_stream(), cann.create_stream()
    values = Vector(cann, [1.0] * 4)
    with cann.captured(main) as graph:
        cann.wait_for(side, main)
        look.expect("whether the side stream is captured", cann.is_capturing(side), True)
        values.add(1.0, side)
        cann.wait_for(main, side)
        values.multiply(3.0, main)
    look.expect("whether the side stream is captured after the end", cann.is_capturing(side), False)
    cann.run(graph, main)
    look.expect("the values after a replay", values.read(), [6.0] * 4)


def other_capture(look: Look) -> None:
    """Wait in a capture for an event of another."""
    cann = Cann()
    first, second, event = cann.create_stream(), cann.create_stream(), cann.create_event()
    cann.begin_capture(first)
    cann.begin_capture(second)
    cann.ok("aclrtRecordEvent", event, first)
    look.expect("the wait", cann.call("aclrtStreamWaitEvent", second, event), 107032)
    look.expect("the end of the first capture", cann.end_status(first), 507903)
    look.expect("the end of the second capture", cann.end_status(second), 507903)


def outside_event(look: Look) -> None:
    """Wait in a capture for an event that was recorded outside."""
    cann = Cann()
    stream, other, event = cann.create_stream(), cann.create_stream(), cann.create_event()
    cann.ok("aclrtRecordEvent", event, other)
    with cann.capturing(stream):
        look.expect("the wait", cann.call("aclrtStreamWaitEvent", stream, event), 107024)


def old_event(look: Look) -> None:
    """Record an event of the older kind in a capture."""
    cann = Cann()
    stream, event = cann.create_stream(), Handle()
    cann.ok("aclrtCreateEvent", ctypes.byref(event))
    with cann.capturing(stream):
        look.expect("aclrtRecordEvent", cann.call("aclrtRecordEvent", event, stream), 207000)


def unjoined(look: Look) -> None:
    """End captures whose side stream did not come back."""
    cann = Cann()
    main, side, values = cann.create_stream(), cann.create_stream(), Vector(cann, [1.0] * 4)

    def begin() -> None:
        cann.begin_capture(main)
        cann.wait_for(side, main)
        values.add(1.0, side)

    begin()
    look.expect("a side stream whose last task is a kernel", cann.end_status(main), 107025)
    begin()
    cann.ok("aclrtRecordEvent", cann.create_event(), side)
    look.expect("a side stream whose record nobody waits for", cann.end_status(main), 107025)


def wrong_end(look: Look) -> None:
    """End a capture on another stream, on another thread, and without one."""
    cann = Cann()
    stream, other = cann.create_stream(), cann.create_stream()
    look.expect("without a capture", cann.end_status(stream), 107029)
    cann.begin_capture(stream)
    cann.wait_for(other, stream)
    look.expect("on another stream of the capture", cann.end_status(other), 107036)
    cann.end_status(stream)

    def elsewhere(mode: int) -> int:
        cann.begin_capture(stream, mode)
        status = _on_another_thread(cann, lambda: cann.end_status(stream))
        if status:
            cann.end_status(stream)
        return status

    look.expect("on another thread, mode global", elsewhere(GLOBAL), 107038)
    look.expect("on another thread, mode relaxed", elsewhere(RELAXED), 0)


def over_at_its_end(look: Look) -> None:
    """Synchronise right after the end of a capture, also of one that was refused."""
    cann = Cann()
    main, side = cann.create_stream(), cann.create_stream()
    with cann.captured(main):
        pass
    look.expect("after a capture", cann.call("aclrtSynchronizeStream", main), 0)
    cann.begin_capture(main)
    cann.wait_for(side, main)
    cann.end_status(main)
    look.expect("after one that was refused", cann.call("aclrtSynchronizeStream", main), 0)
    look.expect("of its side stream", cann.call("aclrtSynchronizeStream", side), 0)


def streams_taken(look: Look) -> None:
    """Count the streams that a captured graph uses and releases."""
    cann = Cann()
    if not cann.has("aclrtGetStreamAvailableNum"):
        look.not_tried("this CANN has no aclrtGetStreamAvailableNum")
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    before = cann.free_streams()
    with cann.captured(stream) as small:
        for _ in range(8):
            values.add(1.0, stream)
    look.expect("streams of a graph of 8 kernels", before - cann.free_streams(), 1)
    with cann.captured(stream) as large:
        for _ in range(2048):
            values.add(0.0, stream)
    look.expect("streams of a second one of 2,048", before - cann.free_streams(), 3)
    for graph in (small, large):
        cann.ok("aclmdlRIDestroy", graph)
    look.expect("streams that are not given back", before - cann.free_streams(), 0)


def _on_another_thread(cann: Cann, call: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1, initializer=cann.ok, initargs=("aclrtSetDevice", 0)) as thread:
        return thread.submit(call).result()
