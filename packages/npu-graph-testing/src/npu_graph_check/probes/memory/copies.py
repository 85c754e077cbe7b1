"""Copies: what is refused, and what waits."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Cann,
    Handle,
)
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_WAIT_SECONDS = 0.3


def refused(look: Look) -> None:
    """Copy more than the destination holds, and with a kind that does not fit the addresses."""
    cann = Cann()
    values, host = Vector(cann, [1.0] * 4), ctypes.create_string_buffer(64)
    too_large = (values.address, 8, ctypes.byref(host), 16, HOST_TO_DEVICE)
    look.expect("larger than its destination", cann.call("aclrtMemcpy", *too_large), 107000)
    other_kind = (values.address, 16, ctypes.byref(host), 16, DEVICE_TO_DEVICE)
    found = cann.call("aclrtMemcpy", *other_kind)
    look.expect("memory of the host, said to be the device's", found, 107000)
    look.expect("what the destination holds", values.read(), [1.0] * 4)


def batch(look: Look) -> None:
    """Copy in a batch whose second copy is larger than its destination."""
    cann = Cann()
    if not cann.has("aclrtMemcpyBatch"):
        look.not_tried("this CANN has no batches of copies")
    vectors, pinned = [Vector(cann, [0.0] * 4) for _ in range(3)], Handle()
    cann.ok("aclrtMallocHost", ctypes.byref(pinned), 4096)
    (ctypes.c_float * 4).from_address(pinned.value or 0)[:] = [7.0] * 4
    pointers, numbers = ctypes.c_void_p * 3, ctypes.c_size_t * 3
    failed = ctypes.c_size_t()
    status = cann.call(
        "aclrtMemcpyBatch",
        pointers(*(vector.address.value for vector in vectors)),
        numbers(16, 8, 16),
        pointers(*(pinned.value for _ in vectors)),
        numbers(16, 16, 16),
        3,
        None,
        None,
        0,
        ctypes.byref(failed),
    )
    look.expect("the status", status, 107000)
    look.expect("the copy that failed", failed.value, 1)
    # A copy that comes before it may have been made or not.
    look.expect("what the copies behind it did", vectors[2].read(), [0.0] * 4)


def pageable(look: Look) -> None:
    """Copy to pageable memory of the host, behind a stream that waits."""
    cann = Cann()
    stream, gate = cann.create_stream(), cann.create_stream()
    values, word, host = Vector(cann, [1.0] * 4), Word(cann), (ctypes.c_float * 4)()
    word.wait(stream)
    values.add(1.0, stream)

    def release() -> None:
        time.sleep(_WAIT_SECONDS)
        cann.ok("aclrtSetDevice", 0)
        word.write(gate, 1)

    thread = threading.Thread(target=release)
    began = time.monotonic()
    thread.start()
    look.doing("copying to pageable memory behind a stream that waits")
    given = (ctypes.byref(host), 16, values.address, 16, DEVICE_TO_HOST)
    cann.ok("aclrtMemcpyAsync", *given, stream)
    # No synchronisation: the call has done it.
    look.expect("what the call brought", list(host), [2.0] * 4)
    waited = time.monotonic() - began >= _WAIT_SECONDS
    look.expect("the call waited for the stream", waited, True)
    thread.join()
