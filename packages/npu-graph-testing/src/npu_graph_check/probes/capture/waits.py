"""Streams, events and words that streams wait for, outside captures and inside."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import (
    EVENT_EXTERNAL,
    EVENT_IPC,
    EVENT_SYNC,
    EVENT_TIME_LINE,
    Cann,
    Handle,
)
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def streams_beside_each_other(look: Look) -> None:
    """Let one stream wait while another works."""
    cann = Cann()
    waiting, working, gate = cann.create_stream(), cann.create_stream(), cann.create_stream()
    first, second, word = Vector(cann, [1.0] * 4), Vector(cann, [1.0] * 4), Word(cann)
    word.wait(waiting)
    first.add(1.0, waiting)
    first.multiply(2.0, waiting)
    second.add(1.0, working)
    look.doing("waiting for a stream beside one that waits")
    cann.synchronize(working)
    look.expect("what the other stream did", second.read(), [2.0] * 4)
    look.expect("what the waiting stream did", first.read(), [1.0] * 4)
    word.write(gate, 1)
    cann.synchronize(waiting)
    look.expect("what it did in order", first.read(), [4.0] * 4)


def unrecorded_event(look: Look) -> None:
    """Wait for an event before its first record, and then for its latest."""
    cann = Cann()
    stream, other, gate = cann.create_stream(), cann.create_stream(), cann.create_stream()
    event, values, word = cann.create_event(), Vector(cann, [1.0] * 4), Word(cann)
    look.expect("the wait", cann.call("aclrtStreamWaitEvent", stream, event), 0)
    look.doing("waiting for a stream that waits for an event without a record")
    cann.synchronize(stream)
    cann.ok("aclrtRecordEvent", event, other)
    word.wait(other)
    values.add(1.0, other)
    cann.ok("aclrtRecordEvent", event, other)
    cann.ok("aclrtStreamWaitEvent", stream, event)
    values.multiply(5.0, stream)
    early = cann.call("aclrtSynchronizeStreamWithTimeout", stream, 200)
    look.expect("the stream before the latest record has happened", early, 507046)
    word.write(gate, 1)
    cann.synchronize(stream)
    look.expect("(1 + 1) * 5, behind the latest record", values.read(), [10.0] * 4)


def event_times(look: Look) -> None:
    """Ask for elapsed times of events that have not happened, and in the wrong order."""
    cann = Cann()
    stream, gate, word = cann.create_stream(), cann.create_stream(), Word(cann)
    begin, end = (cann.create_event(EVENT_SYNC | EVENT_TIME_LINE) for _ in range(2))
    elapsed = ctypes.c_float()
    cann.ok("aclrtRecordEvent", begin, stream)
    word.wait(stream)
    cann.ok("aclrtRecordEvent", end, stream)
    early = cann.call("aclrtEventElapsedTime", ctypes.byref(elapsed), begin, end)
    look.expect("before the end has happened", early, 107006)
    word.write(gate, 1)
    cann.synchronize(stream)
    look.expect(
        "in order", cann.call("aclrtEventElapsedTime", ctypes.byref(elapsed), begin, end), 0
    )
    turned = cann.call("aclrtEventElapsedTime", ctypes.byref(elapsed), end, begin)
    look.expect("in the wrong order", turned, 107007)


def limited_synchronisation(look: Look) -> None:
    """Synchronise for 100 ms with a stream that waits longer."""
    cann = Cann()
    stream, gate, word = cann.create_stream(), cann.create_stream(), Word(cann)
    word.wait(stream)
    limited = cann.call("aclrtSynchronizeStreamWithTimeout", stream, 100)
    look.expect("aclrtSynchronizeStreamWithTimeout", limited, 507046)
    word.write(gate, 1)
    look.expect("the stream afterwards", cann.call("aclrtSynchronizeStream", stream), 0)


def flag_event(look: Look) -> None:
    """Wait twice for an event of the older kind, which a wait does not clear."""
    cann = Cann()
    stream, other, event = cann.create_stream(), cann.create_stream(), Handle()
    cann.ok("aclrtCreateEvent", ctypes.byref(event))
    cann.ok("aclrtRecordEvent", event, other)
    look.doing("waiting twice for an event that was recorded once")
    for number in ("first", "second"):
        look.expect(f"the {number} wait", cann.call("aclrtStreamWaitEvent", stream, event), 0)
    cann.synchronize(stream)
    cann.ok("aclrtResetEvent", event, stream)
    cann.synchronize(stream)
    state = ctypes.c_int(-1)
    cann.ok("aclrtQueryEventStatus", event, ctypes.byref(state))
    look.expect("its state after a reset (0: not ready)", state.value, 0)


def word_of_an_external_event(look: Look) -> None:
    """Wait for a word in a graph, write it from another stream, and see it cleared."""
    cann = Cann()
    stream, lane = cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [1.0] * 4), Word(cann)
    with cann.captured(stream) as graph:
        word.take(stream)
        values.add(1.0, stream)
    for number in (1.0, 2.0):
        cann.replay(graph, stream)
        look.expect("what the graph did before the record", values.read(), [number] * 4)
        word.write(lane, 1)
        cann.synchronize(stream)
        look.expect("what it did after it", values.read(), [number + 1.0] * 4)
        look.expect("the word afterwards", word.read(), 0)


def two_records_are_one(look: Look) -> None:
    """Record twice before one wait; the second replay then waits."""
    cann = Cann()
    stream, lane, word = cann.create_stream(), cann.create_stream(), Word(cann)
    with cann.captured(stream) as graph:
        word.take(stream)
    word.write(lane, 1)
    word.write(lane, 1)
    cann.synchronize(lane)
    cann.run(graph, stream)
    cann.replay(graph, stream)
    late = cann.call("aclrtSynchronizeStreamWithTimeout", stream, 300)
    look.expect("the second replay within 300 ms", late, 507046)
    word.write(lane, 1)
    cann.synchronize(stream)


def word_that_a_graph_writes(look: Look) -> None:
    """Write a word in a graph; another graph waits for it, and work of the first goes on."""
    cann = Cann()
    stream, consumer = cann.create_stream(), cann.create_stream()
    values, place, gate = Vector(cann, [1.0] * 4), Word(cann), Word(cann)
    with cann.captured(stream) as graph:
        place.write(stream, 1)
        gate.take(stream)
        values.add(1.0, stream)
    with cann.captured(consumer) as relay:
        place.take(consumer)
    for number in (1.0, 2.0):
        cann.replay(relay, consumer)
        early = cann.call("aclrtSynchronizeStreamWithTimeout", consumer, 300)
        look.expect("the consumer before the replay, within 300 ms", early, 507046)
        cann.replay(graph, stream)
        cann.synchronize(consumer)
        look.expect("later work of the replay at that time", values.read(), [number] * 4)
        gate.write(consumer, 1)
        cann.synchronize(stream)
        look.expect("later work at its end", values.read(), [number + 1.0] * 4)


def wait_sees_a_copy(look: Look) -> None:
    """End a wait by a set of memory instead of a write of a value."""
    cann = Cann()
    stream, word = cann.create_stream(), Word(cann)
    lane, source = cann.create_stream(), Word(cann)
    source.write(lane, 1)
    cann.synchronize(lane)
    word.wait(stream)
    cann.ok("aclrtMemcpyAsync", word.address, 8, source.address, 8, 3, lane)
    late = cann.call("aclrtSynchronizeStreamWithTimeout", stream, 5000)
    look.expect("the wait after the copy", late, 0)


def external_event_object(look: Look) -> None:
    """Wait in a graph for an event of the external kind, which another stream records."""
    cann = Cann()
    stream, lane, event = cann.create_stream(), cann.create_stream(), Handle()
    values = Vector(cann, [1.0] * 4)
    cann.ok("aclrtCreateEventWithFlag", ctypes.byref(event), EVENT_EXTERNAL)
    with cann.captured(stream) as graph:
        cann.ok("aclrtStreamWaitEvent", stream, event)
        cann.ok("aclrtResetEvent", event, stream)
        values.add(1.0, stream)
    for number in (1.0, 2.0):
        cann.replay(graph, stream)
        early = cann.call("aclrtSynchronizeStreamWithTimeout", stream, 200)
        look.expect("the replay before the record, within 200 ms", early, 507046)
        look.expect("what the graph did before the record", values.read(), [number] * 4)
        cann.ok("aclrtRecordEvent", event, lane)
        look.doing("waiting for a replay whose external event was recorded")
        cann.synchronize(stream)
        look.expect("what it did after it", values.read(), [number + 1.0] * 4)


def event_between_processes(look: Look) -> None:
    """Capture and time an event of the kind that processes share."""
    cann = Cann()
    stream, elapsed = cann.create_stream(), ctypes.c_float()
    event, timed = cann.create_event(EVENT_IPC), cann.create_event(EVENT_SYNC | EVENT_TIME_LINE)
    cann.ok("aclrtRecordEvent", timed, stream)
    cann.ok("aclrtRecordEvent", event, stream)
    cann.ok("aclrtStreamWaitEvent", stream, event)
    cann.synchronize(stream)
    time = cann.call("aclrtEventElapsedTime", ctypes.byref(elapsed), timed, event)
    look.expect("an elapsed time up to it", time, 207000)
    with cann.capturing(stream):
        recorded = cann.call("aclrtRecordEvent", event, stream)
        look.expect("a record in a capture", recorded, 207000)


def destroyed_stream(look: Look) -> None:
    """Ask a stream that is destroyed."""
    cann = Cann()
    stream = cann.create_stream()
    cann.ok("aclrtDestroyStream", stream)
    look.doing("synchronising a stream that is destroyed")
    look.expect("synchronising it", cann.call("aclrtSynchronizeStream", stream), 107003)
