"""Calls that a capture does not allow, and their effect on it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import Cann
from npu_graph_check.cann.vector import Vector

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_CAPTURED = 107027


def default_stream(look: Look) -> None:
    """Capture the default stream, and one twice."""
    cann = Cann()
    look.expect("capturing the default stream", cann.call("aclmdlRICaptureBegin", None, 0), 107000)
    stream = cann.create_stream()
    with cann.capturing(stream):
        again = cann.call("aclmdlRICaptureBegin", stream, 0)
        look.expect("capturing a captured stream", again, _CAPTURED)


def synchronising(look: Look) -> None:
    """Wait for, query and destroy a stream in its capture, then replay."""
    cann = Cann()
    stream, values, state = cann.create_stream(), Vector(cann, [1.0] * 4), ctypes.c_int()
    with cann.captured(stream) as graph:
        values.add(1.0, stream)
        for what, call in {
            "aclrtSynchronizeStream": (stream,),
            "aclrtStreamQuery": (stream, ctypes.byref(state)),
            "aclrtDestroyStream": (stream,),
            "aclrtSynchronizeDevice": (),
        }.items():
            look.expect(what, cann.call(what, *call), _CAPTURED)
    cann.run(graph, stream)
    look.expect("the values after a replay", values.read(), [2.0] * 4)
