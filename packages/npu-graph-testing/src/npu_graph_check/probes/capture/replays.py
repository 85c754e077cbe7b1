"""Replays: their order, the values they read, and when they are rejected."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import HOST_TO_DEVICE, Cann, Handle
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def in_order(look: Look) -> None:
    """Replay between kernels of the same stream."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    cann.begin_capture(stream)
    values.multiply(3.0, stream)
    graph = cann.end_capture(stream)
    look.expect("the values after the capture", values.read(), [1.0] * 4)
    values.add(1.0, stream)
    cann.replay(graph, stream)
    values.add(1.0, stream)
    cann.replay(graph, stream)
    cann.synchronize(stream)
    look.expect("((1 + 1) * 3 + 1) * 3", values.read(), [21.0] * 4)


def two_streams(look: Look) -> None:
    """Replay one graph on two streams, where the first replay waits in its middle."""
    cann = Cann()
    first, second, gate = cann.create_stream(), cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [1.0] * 4), Word(cann)
    cann.begin_capture(first)
    values.add(1.0, first)
    word.wait(first)
    word.write(first, 0)
    values.multiply(10.0, first)
    graph = cann.end_capture(first)
    cann.replay(graph, first)
    cann.replay(graph, second)
    look.doing("letting the first replay go on, then the second")
    for _ in range(2):
        word.write(gate, 1)
        cann.synchronize(gate)
        while word.read():
            pass
    cann.synchronize(first)
    cann.synchronize(second)
    look.expect("((1 + 1) * 10 + 1) * 10", values.read(), [210.0] * 4)


def refused(look: Look) -> None:
    """Replay a graph while it is captured, and one that is destroyed."""
    cann = Cann()
    stream, other, graph = cann.create_stream(), cann.create_stream(), Handle()
    state = ctypes.c_int()
    cann.begin_capture(stream)
    cann.ok("aclmdlRICaptureGetInfo", stream, ctypes.byref(state), ctypes.byref(graph))
    during = cann.call("aclmdlRIExecuteAsync", graph, other)
    look.expect("a graph that is still captured", during, 107026)
    graph = cann.end_capture(stream)
    cann.ok("aclmdlRIDestroy", graph)
    look.expect("an unknown handle", cann.call("aclmdlRIExecuteAsync", Handle(0), other), 107000)


def destroyed_while_running(look: Look) -> None:
    """Destroy a graph whose replay waits."""
    cann = Cann()
    stream, gate = cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [1.0] * 4), Word(cann)
    cann.begin_capture(stream)
    word.wait(stream)
    values.add(1.0, stream)
    graph = cann.end_capture(stream)
    cann.replay(graph, stream)
    look.doing("destroying the graph of a replay that waits")
    look.expect("aclmdlRIDestroy", cann.call("aclmdlRIDestroy", graph), 0)
    word.write(gate, 1)
    cann.synchronize(stream)
    look.expect("the values after the replay", values.read(), [2.0] * 4)


def host_memory(look: Look) -> None:
    """Change pinned host memory between replays of a copy."""
    cann = Cann()
    stream, values, host = cann.create_stream(), Vector(cann, [0.0] * 4), Handle()
    cann.ok("aclrtMallocHost", ctypes.byref(host), 4096)
    numbers = (ctypes.c_float * 4).from_address(host.value or 0)
    cann.begin_capture(stream)
    given = (values.address, 16, host, 16, HOST_TO_DEVICE)
    cann.ok("aclrtMemcpyAsync", *given, stream)
    graph = cann.end_capture(stream)
    for number in (3.0, 7.0):
        numbers[:] = [number] * 4
        cann.replay(graph, stream)
        cann.synchronize(stream)
        look.expect("what the copy brought", values.read(), [number] * 4)
