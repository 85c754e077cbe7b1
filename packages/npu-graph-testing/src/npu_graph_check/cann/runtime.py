"""CANN's C interface, called as torch_npu calls it, but with every single status checked.

It does not use torch. Such a probe starts in a fraction of a second, and sees the device's status
rather than what torch_npu's task queue makes of it. The functions are those of ``acl/acl_rt.h`` in
torch_npu's wheel.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from npu_graph_check.errors import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
"""Modes of a capture."""
EVENT_SYNC, EVENT_TIME_LINE, EVENT_EXTERNAL, EVENT_IPC = 0x01, 0x08, 0x20, 0x40
"""Flags of an event."""
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
"""Kinds of a copy."""

_FORMAT_ND = 2
_HBM = 1  # ACL_HBM_MEM
_FINALIZED_ELSEWHERE = 100002  # ACL_ERROR_REPEAT_INITIALIZE: torch_npu was first, which is as good


class CannError(RuntimeError):
    """A call that should have succeeded failed."""

    def __init__(self, name: str, status: int, message: str) -> None:
        super().__init__(f"{name}: status {status}, expected 0{message and ': '}{message}")


class Handle(ctypes.c_void_p):
    """A stream, an event, a graph, a task group, or an address; ctypes keeps its type."""


class Cann:
    """The runtime and the operators of device 0, for one process.

    Raises:
        NoDeviceError: the libraries are not found, or there is no device.
    """

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libascendcl.so")
        except OSError as error:
            raise NoDeviceError(
                f"loading CANN's runtime: {error}; source CANN's set_env.sh, or start the command "
                "with `cann-sim run --`"
            ) from error
        status = self.call("aclInit", None)
        if status not in {0, _FINALIZED_ELSEWHERE}:
            raise NoDeviceError(f"aclInit: status {status}: {self.message()}")
        status = self.call("aclrtSetDevice", 0)
        if status:
            raise NoDeviceError(f"aclrtSetDevice(0): status {status}: {self.message()}")

    def has(self, name: str) -> bool:
        """Return whether this CANN has a function."""
        return hasattr(self.library, name)

    def call(self, name: str, *arguments: object) -> int:
        """Call a function of the runtime, and return its status; 0 is success.

        Args:
            name: of a function of libascendcl.
            arguments: handles, numbers, references by `ctypes.byref`, or None for a null pointer.
        """
        return _call(self.library, name, arguments)

    def ok(self, name: str, *arguments: object) -> None:
        """Call a function that has to succeed.

        Raises:
            CannError: it did not.
        """
        self.require(name, self.call(name, *arguments))

    def require(self, name: str, status: int) -> None:
        """See that a function has succeeded.

        Raises:
            CannError: it has not.
        """
        if status:
            raise CannError(name, status, self.message())

    @functools.cached_property
    def operators(self) -> ctypes.CDLL:
        """The operator library."""
        return ctypes.CDLL("libopapi.so")

    def operator(self, name: str, *arguments: object) -> int:
        """Call a function of the operator library, and return its status."""
        return _call(self.operators, name, arguments)

    def create_tensor(
        self, address: Handle, sizes: Sequence[int], strides: Sequence[int], dtype: int
    ) -> Handle:
        """Return memory as operators take it, in format ND; the description is never freed."""
        create, array = self.operators.aclCreateTensor, ctypes.c_int64 * len(sizes)
        create.restype = ctypes.c_void_p
        shape, rank, start = array(*sizes), ctypes.c_uint64(len(sizes)), ctypes.c_int64(0)
        given = (shape, rank, dtype, array(*strides), start, _FORMAT_ND, shape, rank, address)
        return Handle(create(*given))

    def message(self) -> str:
        """Return the first line of the device's message on the last failure."""
        function = self.library.aclGetRecentErrMsg
        function.restype = ctypes.c_char_p
        said = (function() or b"").decode(errors="replace").strip()
        return said.splitlines()[0] if said else ""

    def create_stream(self) -> Handle:
        """Return a new stream."""
        stream = Handle()
        self.ok("aclrtCreateStreamWithConfig", ctypes.byref(stream), 0, 0)
        return stream

    def create_event(self, flag: int = EVENT_SYNC) -> Handle:
        """Return a new event of the kind that torch_npu makes."""
        event = Handle()
        self.ok("aclrtCreateEventExWithFlag", ctypes.byref(event), flag)
        return event

    def synchronize(self, stream: Handle) -> None:
        """Wait for a stream."""
        self.ok("aclrtSynchronizeStream", stream)

    def begin_capture(self, stream: Handle, mode: int = GLOBAL) -> None:
        """Begin to capture a stream."""
        self.ok("aclmdlRICaptureBegin", stream, mode)

    @contextmanager
    def captured(self, stream: Handle) -> Iterator[Handle]:
        """Capture a stream in the block; behind it, what was yielded is the graph."""
        graph = Handle()
        self.begin_capture(stream)
        yield graph
        self.ok("aclmdlRICaptureEnd", stream, ctypes.byref(graph))

    def end_status(self, stream: Handle) -> int:
        """End a capture that may be refused, and return the status."""
        graph = Handle()
        return self.call("aclmdlRICaptureEnd", stream, ctypes.byref(graph))

    @contextmanager
    def capturing(self, stream: Handle, mode: int = GLOBAL) -> Iterator[None]:
        """Capture a stream in the block, and discard the capture, whether rejected or not."""
        self.begin_capture(stream, mode)
        try:
            yield
        finally:
            self.end_status(stream)

    def replay(self, graph: Handle, stream: Handle) -> None:
        """Launch a replay."""
        self.ok("aclmdlRIExecuteAsync", graph, stream)

    def run(self, graph: Handle, stream: Handle) -> None:
        """Launch a replay, and wait for it."""
        self.replay(graph, stream)
        self.synchronize(stream)

    def wait_for(self, stream: Handle, other: Handle) -> None:
        """Let a stream wait for what another has launched so far, by a new event."""
        event = self.create_event()
        self.ok("aclrtRecordEvent", event, other)
        self.ok("aclrtStreamWaitEvent", stream, event)

    def is_capturing(self, stream: Handle) -> bool:
        """Return whether a stream is captured, and the capture valid."""
        return self.capture_status(stream) == 1

    def capture_status(self, stream: Handle) -> int:
        """Return 0 for a stream that is not captured, 1 for one that is, 2 for an invalid one."""
        status = ctypes.c_int(-1)
        self.ok("aclmdlRICaptureGetInfo", stream, ctypes.byref(status), None)
        return status.value

    def memory(self) -> tuple[int, int]:
        """Return how many bytes the device has left, for all processes, and how many it has."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ok("aclrtGetMemInfo", _HBM, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def free_memory(self) -> int:
        """Return how many bytes the device has left, for all processes."""
        return self.memory()[0]

    def free_streams(self) -> int:
        """Return how many streams the device can still give."""
        count = ctypes.c_uint32()
        self.ok("aclrtGetStreamAvailableNum", ctypes.byref(count))
        return count.value


def _call(library: ctypes.CDLL, name: str, arguments: tuple[object, ...]) -> int:
    # Integers go as 64 bits: each has a register or a place of eight bytes of its own.
    given = [ctypes.c_int64(x) if isinstance(x, int) else x for x in arguments]
    status: int = library[name](*given)
    return status
