"""A small tensor in device memory, and the kernels that probes need."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import DEVICE_TO_HOST, HOST_TO_DEVICE, Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_check.cann.runtime import Cann

_FLOAT = 0
_HUGE_FIRST = 0


class Vector:
    """Float32 values in their own device memory, which lives until the process ends.

    Attributes:
        address: address of the memory.
        tensor: the values as operators take them.
    """

    def __init__(self, cann: Cann, values: Sequence[float]) -> None:
        self._cann = cann
        self._length = len(values)
        self._num_bytes = 4 * self._length
        self.address = Handle()
        # 32 bytes more, as documented for kernels that read whole units.
        cann.ok("aclrtMalloc", ctypes.byref(self.address), self._num_bytes + 32, _HUGE_FIRST)
        self.write(values)
        self.tensor = cann.create_tensor(self.address, [self._length], [1], _FLOAT)

    def write(self, values: Sequence[float]) -> None:
        """Write from the host, which waits."""
        host, n = (ctypes.c_float * self._length)(*values), self._num_bytes
        self._cann.ok("aclrtMemcpy", self.address, n, ctypes.byref(host), n, HOST_TO_DEVICE)

    def read(self) -> list[float]:
        """Read the values on the host, without waiting for work on streams."""
        host, n = (ctypes.c_float * self._length)(), self._num_bytes
        self._cann.ok("aclrtMemcpy", ctypes.byref(host), n, self.address, n, DEVICE_TO_HOST)
        return list(host)

    def add(self, number: float, stream: Handle) -> None:
        """Launch ``self += number``."""
        self._cann.require("aclnnInplaceAdds", self.add_status(number, stream))

    def multiply(self, number: float, stream: Handle) -> None:
        """Launch ``self *= number``."""
        self._cann.require("aclnnInplaceMuls", self.multiply_status(number, stream))

    def add_status(self, number: float, stream: Handle) -> int:
        """Launch ``self += number``, and return the status of the launch."""
        return self._try("aclnnInplaceAdds", stream, self.scalar(number), self.scalar(1.0))

    def multiply_status(self, number: float, stream: Handle) -> int:
        """Launch ``self *= number``, and return the status of the launch."""
        return self._try("aclnnInplaceMuls", stream, self.scalar(number))

    def _try(self, name: str, stream: Handle, *arguments: Handle) -> int:
        cann = self._cann
        size, executor, workspace = ctypes.c_uint64(), Handle(), Handle()
        given = (self.tensor, *arguments, ctypes.byref(size), ctypes.byref(executor))
        first = f"{name}GetWorkspaceSize"
        cann.require(first, cann.operator(first, *given))
        if size.value:
            cann.ok("aclrtMalloc", ctypes.byref(workspace), size.value, _HUGE_FIRST)
        return cann.operator(name, workspace, size.value, executor, stream)

    def scalar(self, number: float) -> Handle:
        """Return a number as operators take it, which lives until the process ends."""
        create = self._cann.operators.aclCreateScalar
        create.restype = ctypes.c_void_p
        return Handle(create(ctypes.byref(ctypes.c_float(number)), _FLOAT))


class Word:
    """A word of device memory that streams wait for and write, as external events are made of."""

    def __init__(self, cann: Cann) -> None:
        self._cann = cann
        self.address = Handle()
        cann.ok("aclrtMalloc", ctypes.byref(self.address), 64, _HUGE_FIRST)
        cann.ok("aclrtMemset", self.address, 64, 0, 64)

    def wait(self, stream: Handle) -> None:
        """Let a stream wait until the word is 1."""
        self._cann.ok("aclrtValueWait", self.address, 1, 1, stream)

    def take(self, stream: Handle) -> None:
        """Let a stream wait until the word is 1, and write 0."""
        self.wait(stream)
        self.write(stream, 0)

    def write(self, stream: Handle, value: int) -> None:
        """Let a stream write the word."""
        self._cann.ok("aclrtValueWrite", self.address, value, 0, stream)

    def read(self) -> int:
        """Read the word by the host."""
        host = ctypes.c_uint64()
        self._cann.ok("aclrtMemcpy", ctypes.byref(host), 8, self.address, 8, DEVICE_TO_HOST)
        return host.value
