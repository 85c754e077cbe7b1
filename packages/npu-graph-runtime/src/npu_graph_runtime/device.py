"""The device interface: the protocols that a device must implement.

Streams and events are the device's native objects (``torch.npu.Stream`` and so on). They implement
these protocols as they are, so the hot path has no extra cost.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor


@runtime_checkable
class Stream(Protocol):
    """An in-order queue of device work."""

    def wait_event(self, event: Event, /) -> None:
        """Make later work of this stream wait for the event; the host does not wait."""

    def wait_stream(self, stream: Stream, /) -> None:
        """Make later work of this stream wait for the present work of ``stream``."""

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record the event, or a new one, after the work launched so far, and return it."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""

    def query(self) -> bool:
        """Return whether the stream is empty."""


@runtime_checkable
class Event(Protocol):
    """A point in a stream that other streams and the host can wait for."""

    def record(self, stream: Stream | None = None, /) -> None:
        """Record on ``stream``, or on the current stream."""

    def wait(self, stream: Stream | None = None, /) -> None:
        """Make later work of ``stream``, or of the current stream, wait for this event."""

    def query(self) -> bool:
        """Return whether the last record has been reached; true if there was none."""

    def synchronize(self) -> None:
        """Block the host until the last record has been reached."""


@runtime_checkable
class ExternalEvent(Protocol):
    """An event that a captured graph waits for and that is recorded from outside it.

    Unlike an :class:`Event`, it may be waited for before it is recorded. The sequence is
    ``wait`` and ``reset`` inside the capture, and one ``record`` for each replay outside it.
    """

    def wait(self, stream: Stream, /) -> None:
        """Make later work of the stream wait until the event is recorded."""

    def reset(self, stream: Stream, /) -> None:
        """Reset the event to unrecorded, in stream order."""

    def record(self, stream: Stream, /) -> None:
        """Record the event, in stream order."""


class DeviceGraph(Protocol):
    """A captured graph of the device."""

    def replay(self) -> None:
        """Launch the captured work on the current stream."""

    def reset(self) -> None:
        """Release the captured work and its reference to the memory pool."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFigures:
    """Memory of a device, in bytes.

    Attributes:
        allocated: bytes of live tensors of this process.
        reserved: bytes reserved by this process's allocator, including ``allocated``.
        free: bytes that the device could still give to any process.
        total: total bytes of the device.
    """

    allocated: int
    reserved: int
    free: int
    total: int


class TaskDevice(Protocol):
    """Streams, events, task groups and weak references of a device."""

    def current_stream(self) -> Stream:
        """Return the stream on which the calling thread launches work."""

    def create_stream(self, *, priority: int = 0) -> Stream:
        """Return a new stream; a lower number is a higher priority."""

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context manager in which ``stream`` is the current stream of the thread."""

    def create_event(self) -> Event:
        """Return a new event."""

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event, unrecorded."""

    def begin_task_group(self, stream: Stream) -> None:
        """Begin a task group of the graph that ``stream`` is capturing.

        Raises:
            RuntimeError: ``stream`` is not capturing, or a task group is open.
        """

    def end_task_group(self, stream: Stream) -> object:
        """End the task group and return its handle, which lives as long as the graph."""

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Begin to relaunch the work of a task group on ``stream``, with new arguments.

        Raises:
            RuntimeError: The handle is unknown, ``stream`` is capturing, or an update is open.
        """

    def end_task_update(self, stream: Stream) -> None:
        """End the update; it takes effect in the order of ``stream``."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is capturing."""

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the same storage that does not keep it alive.

        The caller must ensure that the memory outlives every use, as the memory pool of a captured
        graph does until the graph is reset.
        """


class GraphDevice(TaskDevice, Protocol):
    """A device that captures and replays graphs; the interface this package works with.

    Attributes:
        name: name for messages, such as ``npu:0``.
        torch_device: the torch device of its tensors.
    """

    name: str
    torch_device: torch.device

    def create_memory_pool(self) -> object:
        """Return an opaque handle; graphs captured with the same handle share their memory.

        It stays valid after all its graphs were reset or failed: the next capture starts a new
        pool.
        """

    def create_graph(self) -> DeviceGraph:
        """Return an empty graph, for one capture."""

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> AbstractContextManager[object]:
        """Return a context manager in which work is captured into ``graph`` and does not run.

        However it is left, the device is not capturing afterwards and the previous stream is
        current again.
        After an exception, the graph is empty and must not be used any more, and the exception of
        the body propagates. It may be left again with an exception: that undoes only what an
        interrupt of the first time has left.

        Args:
            graph: an empty graph of this device.
            pool: a handle from :meth:`create_memory_pool`.
            stream: the capture stream, never the default stream; by default a stream of the
                device's own.

        Raises:
            RuntimeError: The stream is the default one or already capturing, the graph has already
                been captured, or the device rejects the captured work.
        """

    def synchronize(self) -> None:
        """Block the host until all work of the device is done."""

    def empty_cache(self) -> None:
        """Return the allocator's unused memory to the device."""

    def memory_figures(self) -> MemoryFigures:
        """Return the current memory figures."""

    def free_streams(self) -> int | None:
        """Return the number of streams that the device can still provide, or ``None``.

        A captured graph uses at least one for each stream that it was captured on, until it is
        reset; none if the device uses streams only while a graph runs. ``None`` if the device does
        not report it.
        """


class ExpectedStep(Protocol):
    """What each thread is about to replay.

    Attributes:
        step: any object; ``None`` if not set.
    """

    step: object


@runtime_checkable
class GuardingDevice(Protocol):
    """An optional part of a device: its graphs call back before they are replayed.

    A captured graph may wait for something from outside, for instance for updates of its attention.
    If it were replayed in place of another graph, it would wait forever. The code that captures
    such work guards the graph, and the code around a replay says what it expects.
    """

    @property
    def expected_replay(self) -> ExpectedStep:
        """What the calling thread is about to replay."""

    def guard_replays(self, refusal: Callable[[object], str | None]) -> bool:
        """Call back before each replay of the graph that this thread is capturing.

        Args:
            refusal: returns why the replay is rejected, or ``None``. Its argument is the ``step``
                of `expected_replay`. It must not keep the graph alive. A second one replaces the
                first.

        Returns:
            Whether there is such a graph, captured by :meth:`GraphDevice.capture`.
        """

    def is_guarded(self, graph: object) -> bool:
        """Return whether the graph must not be replayed without a step of updates."""


ReplayWrap: TypeAlias = "Callable[[Callable[[Any], None], Callable[[], Any]], Callable[[], None]]"


@runtime_checkable
class WrappingDevice(Protocol):
    """An optional part of a device: code runs around each launch of its graphs.

    It runs whatever replays the graph, so nobody can forget it.
    """

    @property
    def stream_identity(self) -> Callable[[], object]:
        """A function that identifies the thread's current stream, faster than `current_stream`."""

    def stream_of(self, identity: object) -> Stream:
        """Return the stream of a result of `stream_identity`."""

    def wrap_replays(self, wrap: ReplayWrap) -> bool:
        """Replace the launch of the graph that this thread is capturing.

        Args:
            wrap: called at once, and once for a graph, with the launch so far and with a weak
                reference to the graph, which is the argument of that launch. Returns the new
                launch, which runs in each replay that no guard has rejected, and which must not
                keep the graph alive.

        Returns:
            Whether there is such a graph, captured by :meth:`GraphDevice.capture`.
        """


@runtime_checkable
class SnapshotDevice(Protocol):
    """An optional part of a device: it reports its allocator's blocks."""

    def memory_snapshot(self) -> Mapping[str, Any]:
        """Return the ``segments`` of the allocator with their blocks, and other information.

        The pickled result has the format that pytorch.org/memory_viz reads.
        """


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AllocatorRecord:
    """The content and history of a caching allocator, in the form of torch's snapshots.

    Attributes:
        segments: segments with their blocks, none expandable, each with the id of its pool.
        entries: allocations, releases and more, in order. If this version of the allocator does not
            report the pool of an entry, its segment does.
    """

    segments: tuple[Mapping[str, Any], ...]
    entries: tuple[Mapping[str, Any], ...]


class AllocatorHistory(Protocol):
    """Records the actions of a device's allocator while this object is alive."""

    def take(self) -> AllocatorRecord | None:
        """Return the content, and the history since the last call; ``None`` if incomplete."""

    def end(self) -> None:
        """Stop recording."""


@runtime_checkable
class HistoryDevice(Protocol):
    """An optional part of a device: its allocator can record its history."""

    def begin_history(self) -> AllocatorHistory | None:
        """Start recording allocations and releases; ``None`` if somebody already does."""
