"""Conditional tasks: child graphs that run, or not, by a value in device memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import DEVICE_TO_DEVICE, RELAXED, Cann, Handle
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npu_graph_check.probe import Look

_IF, _WHILE, _SWITCH = 0, 1, 2
_ASSIGN_DEFAULT = 1
_BYTES = 8  # of the value


class _Parameters(ctypes.Structure):
    _fields_ = (
        ("handle", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("size", ctypes.c_uint32),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Conditional:
    """A capture with one conditional task, whose child graphs add numbers."""

    def __init__(self, cann: Cann, kind: int, count: int, *, default: int) -> None:
        self.cann, self.stream, self.values = cann, cann.create_stream(), Vector(cann, [0.0] * 4)
        self.graph, self.handle, self.value = Handle(), Handle(), Handle()
        self.children = (ctypes.c_void_p * count)()
        status = ctypes.c_int()
        cann.begin_capture(self.stream, RELAXED)
        given = (self.stream, ctypes.byref(status), ctypes.byref(self.graph))
        cann.ok("aclmdlRICaptureGetInfo", *given)
        create = (self.graph, default, _ASSIGN_DEFAULT, ctypes.byref(self.handle))
        cann.ok("aclmdlRICondHandleCreate", *create)
        cann.ok("aclmdlRICondHandleGetCondPtr", self.handle, ctypes.byref(self.value))
        parameters = _Parameters(self.handle, kind, count, self.children)
        cann.ok("aclmdlRIAddCondTask", parameters, self.stream, 0)

    def child(self, index: int) -> Handle:
        return Handle(self.children[index])

    def capture_child(
        self, index: int, number: float, more: Callable[[Handle], None] | None = None
    ) -> None:
        cann, stream = self.cann, self.cann.create_stream()
        cann.ok("aclmdlRICaptureToModelRIBegin", stream, self.child(index), RELAXED)
        self.values.add(number, stream)
        if more is not None:
            more(stream)
        cann.ok("aclmdlRICaptureEnd", stream, None)

    def end(self) -> int:
        return self.cann.call("aclmdlRICaptureEnd", self.stream, ctypes.byref(self.graph))

    def replay(self) -> float:
        self.cann.run(self.graph, self.stream)
        return self.values.read()[0]


def _open(look: Look) -> Cann:
    cann = Cann()
    if not cann.has("aclmdlRICondHandleCreate"):
        look.not_tried("this CANN has no conditional tasks")
    return cann


def _result(cann: Cann, kind: int, numbers: Sequence[float], default: int) -> float:
    conditional = _Conditional(cann, kind, len(numbers), default=default)
    for index, number in enumerate(numbers):
        conditional.capture_child(index, number)
    status = conditional.end()
    return conditional.replay() if status == 0 else float(status)


def branches(look: Look) -> None:
    """Replay an if and a switch with values that have a child graph, and a while that counts."""
    cann = _open(look)
    for value, expected in ((1, 1.0), (7, 1.0), (0, 100.0)):
        seen = _result(cann, _IF, (1.0, 100.0), value)
        look.expect(f"an if with two child graphs and the value {value}", seen, expected)
    for value, expected in ((0, 1.0), (1, 10.0), (2, 100.0)):
        seen = _result(cann, _SWITCH, (1.0, 10.0, 100.0), value)
        look.expect(f"a switch with the value {value}", seen, expected)
    loop, first, last = _Conditional(cann, _WHILE, 1, default=3), Word(cann), Word(cann)

    def next_value(stream: Handle) -> None:
        for to, source in ((loop.value, first), (first.address, last)):
            given = (to, _BYTES, source.address, _BYTES, DEVICE_TO_DEVICE)
            cann.ok("aclrtMemcpyAsync", *given, stream)

    loop.capture_child(0, 1.0, next_value)
    look.expect("the end of the capture of a while", loop.end(), 0)
    look.doing("replaying a while whose child graph copies its next value")
    for runs, total in ((2, 2.0), (1, 3.0)):
        # The copies bring 1 and then 0, or 0 at once.
        first.write(loop.stream, runs - 1)
        look.expect(f"a while of {runs} runs, with the runs before", loop.replay(), total)


def nothing_to_run(look: Look) -> None:
    """Replay conditional tasks whose value has no child graph."""
    cann = _open(look)
    look.expect("an if with one child graph and 0", _result(cann, _IF, (1.0,), 0), 0.0)
    look.expect("a switch with two and the value 2", _result(cann, _SWITCH, (1.0, 10.0), 2), 0.0)
    look.expect("a while with the value 0", _result(cann, _WHILE, (1.0,), 0), 0.0)


def children(look: Look) -> None:
    """End a capture whose child graph is not captured; replay and destroy a child on its own."""
    cann = _open(look)
    missing = _Conditional(cann, _IF, 1, default=1)
    look.expect("the end without a captured child graph", missing.end(), 107046)
    whole = _Conditional(cann, _IF, 1, default=1)
    whole.capture_child(0, 1.0)
    look.expect("the end with it", whole.end(), 0)
    child = whole.child(0)
    replayed = cann.call("aclmdlRIExecuteAsync", child, whole.stream)
    look.expect("a replay of the child graph", replayed, 207000)
    look.expect("destroying the child graph", cann.call("aclmdlRIDestroy", child), 207000)
    look.expect("the graph afterwards", whole.replay(), 1.0)
