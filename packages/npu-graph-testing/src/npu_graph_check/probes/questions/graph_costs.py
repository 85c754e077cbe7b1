"""How many tasks a stream takes, and what a captured graph takes of the device."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import Cann
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_MOST_TASKS, _STILL_SECONDS = 8192, 2.0
_KERNELS = (1, 100, 1000, 3000)


def queue_depth(look: Look) -> None:
    """Launch behind a wait until a launch does not return, then let the stream go on."""
    cann = Cann()
    stream, gate = cann.create_stream(), cann.create_stream()
    values, word = Vector(cann, [0.0] * 4), Word(cann)
    word.wait(stream)
    taken, is_over = [0], threading.Event()
    held: list[int] = []

    def release() -> None:
        before = -1
        while before != taken[0]:
            before = taken[0]
            if is_over.wait(_STILL_SECONDS):
                break
        held.append(taken[0])
        # The device is chosen by each thread of the host.
        cann.ok("aclrtSetDevice", 0)
        word.write(gate, 1)
        cann.synchronize(gate)

    look.doing("launching until a launch does not return")
    watcher = threading.Thread(target=release, daemon=True)
    watcher.start()
    for _ in range(_MOST_TASKS):
        values.add(1.0, stream)
        taken[0] += 1
    is_over.set()
    watcher.join()
    cann.synchronize(stream)
    depth = held[0] if held[0] < _MOST_TASKS else f"{_MOST_TASKS} or more"
    look.answer("kernels behind a wait that a stream takes before a launch blocks", depth)


def graph_costs(look: Look) -> None:
    """Capture graphs of more and more kernels."""
    cann = Cann()
    stream, values = cann.create_stream(), Vector(cann, [0.0] * 4)
    streams, num_bytes = [], []
    graphs = []
    for count in _KERNELS:
        look.doing(f"capturing {count} kernels")
        had = cann.free_streams(), cann.free_memory()
        with cann.captured(stream) as graph:
            for _ in range(count):
                values.add(1.0, stream)
        graphs.append(graph)
        streams.append(had[0] - cann.free_streams())
        num_bytes.append(had[1] - cann.free_memory())
    for graph in graphs:
        cann.ok("aclmdlRIDestroy", graph)
    for count, taken, size in zip(_KERNELS, streams, num_bytes, strict=True):
        look.answer(f"streams of a graph of {count} kernels", taken)
        # Other processes take memory as well.
        look.figure(f"memory of a graph of {count} kernels", size, "bytes")
