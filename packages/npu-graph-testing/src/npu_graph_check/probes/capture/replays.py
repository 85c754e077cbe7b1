"""Replays: their order, the values they read, and when they are rejected."""

from __future__ import annotations

import ctypes
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import HOST_TO_DEVICE, Cann, Handle
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def in_order(look: Look) -> None:
    """Replay between kernels of the same stream."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    with cann.captured(stream) as graph:
        values.multiply(3.0, stream)
    look.expect("the values after the capture", values.read(), [1.0] * 4)
    values.add(1.0, stream)
    cann.replay(graph, stream)
    values.add(1.0, stream)
    cann.run(graph, stream)
    look.expect("((1 + 1) * 3 + 1) * 3", values.read(), [21.0] * 4)


def two_streams(look: Look) -> None:
    """Replay one graph on two streams, where the first replay waits in its middle."""
    cann = Cann()
    first, second, gate = cann.create_stream(), cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [1.0] * 4), Word(cann)
    with cann.captured(first) as graph:
        values.add(1.0, first)
        word.take(first)
        values.multiply(10.0, first)
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
    stream, other, state = cann.create_stream(), cann.create_stream(), ctypes.c_int()
    with cann.captured(stream) as graph:
        cann.ok("aclmdlRICaptureGetInfo", stream, ctypes.byref(state), ctypes.byref(graph))
        during = cann.call("aclmdlRIExecuteAsync", graph, other)
        look.expect("a graph that is still captured", during, 107026)
    cann.ok("aclmdlRIDestroy", graph)
    look.expect("an unknown handle", cann.call("aclmdlRIExecuteAsync", Handle(0), other), 107000)


def destroyed_while_running(look: Look) -> None:
    """Destroy a graph whose replay waits."""
    cann = Cann()
    stream, gate = cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [1.0] * 4), Word(cann)
    with cann.captured(stream) as graph:
        word.wait(stream)
        values.add(1.0, stream)
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
    with cann.captured(stream) as graph:
        given = (values.address, 16, host, 16, HOST_TO_DEVICE)
        cann.ok("aclrtMemcpyAsync", *given, stream)
    for number in (3.0, 7.0):
        numbers[:] = [number] * 4
        cann.run(graph, stream)
        look.expect("what the copy brought", values.read(), [number] * 4)


def written_as_json(look: Look) -> None:
    """Write a graph of two streams as JSON, and count its tasks."""
    cann = Cann()
    if not cann.has("aclmdlRIDebugJsonPrint"):
        look.not_tried("this CANN writes no graph as JSON")
    main, side, values = cann.create_stream(), cann.create_stream(), Vector(cann, [1.0] * 4)
    word = Word(cann)
    with cann.captured(main) as graph:
        word.take(main)
        cann.wait_for(side, main)
        values.add(1.0, side)
        cann.wait_for(main, side)
        values.multiply(3.0, main)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        cann.ok("aclmdlRIDebugJsonPrint", graph, str(path).encode(), 0)
        tasks = [task for task in json.loads(path.read_text()) if task.get("ph") == "X"]
    streams: dict[object, list[str]] = {}
    for task in tasks:
        # Numbers stand behind the names of waits and records, libraries behind those of kernels.
        kind = task["name"].rstrip("0123456789").rstrip("_")
        named = kind if kind.isupper() else "a kernel"
        streams.setdefault(task["tid"], []).append(named)
    expected = [
        ["EVENT_WAIT", "a kernel", "EVENT_RECORD"],
        ["MEM_WAIT_VALUE", "MEM_WRITE_VALUE", "EVENT_RECORD", "EVENT_WAIT", "a kernel"],
    ]
    look.expect("the tasks of each stream", sorted(streams.values()), expected)


def memory_of_arguments(look: Look) -> None:
    """Measure the memory of the device that captured kernels hold until their graph is gone."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [1.0] * 4)
    before, kernels = cann.free_memory(), 1000
    with cann.captured(stream) as graph:
        for _ in range(kernels):
            values.add(0.0, stream)
    held = before - cann.free_memory()
    look.expect("bytes of a captured kernel", held // kernels, 6208)
    cann.ok("aclmdlRIDestroy", graph)
    look.expect("bytes that are held afterwards", before - cann.free_memory(), 0)
