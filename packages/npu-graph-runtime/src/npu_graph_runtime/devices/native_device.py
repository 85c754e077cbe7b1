"""What devices have in common whose streams, events and graphs are those of torch."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from npu_graph_runtime.device import MemoryFigures
from npu_graph_runtime.devices.living_pool import LivingPools
from npu_graph_runtime.devices.native_capture import NativeCapture
from npu_graph_runtime.guarded_replays import GuardedReplays

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import DeviceGraph, Event, Stream

CaptureErrorMode: TypeAlias = Literal["global", "thread_local", "relaxed"]


class NativeDevice(GuardedReplays):
    """A device of ``torch.npu`` or ``torch.cuda``, which becomes the current one of the thread."""

    def __init__(
        self, native: Any, kind: str, index: int, capture_error_mode: CaptureErrorMode
    ) -> None:
        super().__init__()
        self.index = index
        self.name = f"{kind}:{index}"
        self.torch_device = torch.device(kind, index)
        native.set_device(index)
        self._native = native
        self._capture_error_mode = capture_error_mode
        self._capture_stream: Stream | None = None
        self._pools = LivingPools(native.graph_pool_handle)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.index == other.index

    def __hash__(self) -> int:
        return hash(self.name)

    def bind_thread(self) -> None:
        """Make this device the calling thread's current one; a new thread has device 0."""
        self._native.set_device(self.index)

    @abstractmethod
    def current_stream(self) -> Stream:
        """Return the thread's current stream of this device."""

    @abstractmethod
    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context manager in which ``stream`` is current."""

    def create_stream(self, *, priority: int = 0) -> Stream:
        """Return a new stream; a lower number is a higher priority."""
        stream: Stream = self._native.Stream(device=self.index, priority=priority)
        return stream

    def create_event(self) -> Event:
        """Return a new event without timing."""
        event: Event = self._native.Event()
        return event

    def is_capturing(self) -> bool:
        """Return whether the current stream is capturing."""
        capturing: bool = self._native.is_current_stream_capturing()
        return capturing

    def create_memory_pool(self) -> object:
        """Return a graph pool handle, for any number of captures."""
        return self._pools.create()

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> AbstractContextManager[object]:
        """Return a context manager that captures into ``graph``; see :class:`GraphDevice`."""
        if stream is None:
            if self._capture_stream is None:
                self._capture_stream = self.create_stream()
            stream = self._capture_stream
        captured = NativeCapture(
            self,
            graph,
            native_pool=functools.partial(self._pools.native, pool, graph),
            stream=stream,
            error_mode=self._capture_error_mode,
            end_allocation=self._end_allocation,
        )
        return self._guarding(graph, captured)

    def synchronize(self) -> None:
        """Block the host until all work of the device is done."""
        self._native.synchronize(self.index)

    def empty_cache(self) -> None:
        """Return the caching allocator's unused memory to the device."""
        self._native.empty_cache()

    def memory_figures(self) -> MemoryFigures:
        """Return the caching allocator's and the device's figures, in bytes."""
        free, total = self._native.mem_get_info(self.index)
        return MemoryFigures(
            allocated=self._native.memory_allocated(self.index),
            reserved=self._native.memory_reserved(self.index),
            free=free,
            total=total,
        )

    @abstractmethod
    def _end_allocation(self, native_pool: object) -> None:
        """End what a capture began in a pool's allocator; see `NativeCapture`."""
