"""The device interface on torch.cuda, without task groups.

`npu_graph_testing.DeviceContract` passes on an H100 (torch 2.11.0 with CUDA 13.0, driver
580), run on 2026-11-26.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from npu_graph_runtime.capturing.fresh_memory import extent_of
from npu_graph_runtime.devices.native_device import NativeDevice
from npu_graph_runtime.errors import (
    DeviceUnavailableError,
    FeatureNotSupportedError,
)
from npu_graph_runtime.torch_internals import end_cuda_allocation

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from npu_graph_runtime.device import DeviceGraph, ExternalEvent, Stream
    from npu_graph_runtime.devices.native_device import CaptureErrorMode

# Of CUDA's driver (cuda.h): wait until the word has the value, and what it is written to.
_WAIT_EQUAL = 1
_SET, _UNSET = 1, 0


class CudaDevice(NativeDevice):
    """One GPU, through torch.cuda's own streams, events and graphs.

    Streams and events are not wrapped (``torch.cuda.Stream``, ``torch.cuda.Event``), and graphs are
    ``torch.cuda.CUDAGraph``. External events are words of device memory that streams write and wait
    for, through the driver's ``cuStreamWriteValue32`` and ``cuStreamWaitValue32``, because a CUDA
    event that is not recorded yet does not block a stream. There are no task groups, so attention
    must read its lengths from device memory. torch.cuda is initialised on construction.

    Differences from ``torch.cuda.graph`` are those of :class:`~npu_graph_runtime.NpuDevice`: a
    capture neither synchronises nor empties caches, and an exception leaves nothing open.

    Args:
        index: device index.
        capture_error_mode: which threads' unsafe calls break a capture, as in ``torch.cuda.graph``.

    Attributes:
        name: ``cuda:<index>``.
        torch_device: the same as a torch device.
        index: as given.
        stream_identity: the thread's current stream; see `WrappingDevice`.

    Raises:
        DeviceUnavailableError: torch finds no such GPU.
    """

    def __init__(self, index: int = 0, *, capture_error_mode: CaptureErrorMode = "global") -> None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not 0 <= index < count:
            raise DeviceUnavailableError(
                f"opening device cuda:{index}: torch {torch.__version__} sees {count} GPUs, "
                f"expected at least {index + 1}; install a build of torch with CUDA on a machine "
                "with a GPU"
            )
        super().__init__(torch.cuda, "cuda", index, capture_error_mode)
        self.stream_identity: Callable[[], object] = self.current_stream

    def current_stream(self) -> Stream:
        """Return the thread's current stream of this device."""
        native: Any = torch.cuda.current_stream(self.index)
        stream: Stream = native
        return stream

    def stream_of(self, identity: object) -> Stream:
        """Return the stream of a result of `stream_identity`."""
        stream: Any = identity
        native: Stream = stream
        return native

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context manager in which ``stream`` is current."""
        native: Any = stream
        return torch.cuda.stream(native)

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event, unrecorded; not inside a capture.

        Raises:
            FeatureNotSupportedError: The CUDA driver cannot wait for values in memory.
        """
        return _Word(self)

    def begin_task_group(self, stream: Stream) -> None:
        """Raise an error: CUDA has no task groups."""
        self._refuse("beginning a task group", stream)

    def end_task_group(self, stream: Stream) -> object:
        """Raise an error: CUDA has no task groups."""
        self._refuse("ending a task group", stream)

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Raise an error: CUDA has no task groups."""
        del handle
        self._refuse("beginning a task update", stream)

    def end_task_update(self, stream: Stream) -> None:
        """Raise an error: CUDA has no task groups."""
        self._refuse("ending a task update", stream)

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the same device memory that does not keep it alive.

        A tensor that is not on a GPU, or that has no memory, is returned unchanged.
        """
        if tensor.device.type != "cuda" or not tensor.numel():
            return tensor
        memory = _Memory(tensor.data_ptr(), extent_of(tensor) * tensor.element_size())
        flat: Tensor = torch.as_tensor(memory, device=tensor.device)
        return flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def create_graph(self) -> DeviceGraph:
        """Return an empty ``torch.cuda.CUDAGraph``."""
        graph: DeviceGraph = torch.cuda.CUDAGraph()
        return graph

    def free_streams(self) -> int | None:
        """Return ``None``: CUDA does not report it, and a graph that does not run uses none."""
        return None

    def _end_allocation(self, native_pool: object) -> None:
        end_cuda_allocation(self.index, native_pool)

    def _refuse(self, doing: str, stream: Stream) -> NoReturn:
        raise FeatureNotSupportedError(
            f"{doing} on {stream} of {self.name}: CUDA has no task groups; let kernels read what "
            "changes from device memory, or break the capture (runs_eagerly)"
        )


class _Word:
    """An external event: a word of device memory that streams write and wait for."""

    def __init__(self, device: CudaDevice) -> None:
        self._word = torch.zeros(1, dtype=torch.int32, device=device.torch_device)
        # It is unset before any stream may look at it.
        device.current_stream().synchronize()
        self._write = _driver_call("cuStreamWriteValue32", device.name)
        self._wait = _driver_call("cuStreamWaitValue32", device.name)

    def wait(self, stream: Stream, /) -> None:
        """Make later work of the stream wait until the event is recorded."""
        self._issue(self._wait, stream, _SET, _WAIT_EQUAL)

    def reset(self, stream: Stream, /) -> None:
        """Reset the event to unrecorded, in stream order."""
        self._issue(self._write, stream, _UNSET, 0)

    def record(self, stream: Stream, /) -> None:
        """Record the event, in stream order."""
        self._issue(self._write, stream, _SET, 0)

    def _issue(self, call: Callable[..., int], stream: Any, value: int, flags: int) -> None:
        status = call(stream.cuda_stream, self._word.data_ptr(), value, flags)
        if status:
            raise FeatureNotSupportedError(
                f"issuing an external event on {stream}: CUDA's driver returned {status}, expected "
                "0; it has to allow stream memory operations"
            )


class _Memory:
    """Some bytes of a GPU, for `torch.as_tensor`, which keeps only this object alive."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def _driver_call(name: str, device_name: str) -> Callable[..., int]:
    """Return a function of (stream, address, 32-bit value, flags) of CUDA's driver."""
    library = ctypes.CDLL("libcuda.so.1")
    # The second version of the calls; drivers before CUDA 12 have it under this name as well.
    address = getattr(library, f"{name}_v2", None)
    if address is None:
        raise FeatureNotSupportedError(
            f"making an external event on {device_name}: CUDA's driver has no {name}_v2, expected "
            "one as in CUDA 11.7 and later; install a newer driver"
        )
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint
    )
    call: Callable[..., int] = prototype((f"{name}_v2", library))
    return call
