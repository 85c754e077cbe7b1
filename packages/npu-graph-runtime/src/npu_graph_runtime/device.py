"""The device seam: what this package asks of a device, as Protocols.

Streams and events are the device's native objects (``torch.npu.Stream`` and so on): they fit these
Protocols as they are, so nothing is added on the hot path.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor


@runtime_checkable
class Stream(Protocol):
    """An in-order queue of device work."""

    def wait_event(self, event: Event, /) -> None:
        """Let later work of this stream wait for the event; the host does not wait."""

    def wait_stream(self, stream: Stream, /) -> None:
        """Let later work of this stream wait for what ``stream`` holds now."""

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record the event, or a new one, behind the work issued so far, and return it."""

    def synchronize(self) -> None:
        """Let the host wait until the stream is empty."""

    def query(self) -> bool:
        """Return whether the stream is empty."""


@runtime_checkable
class Event(Protocol):
    """A mark in a stream that other streams and the host can wait for."""

    def record(self, stream: Stream | None = None, /) -> None:
        """Record on ``stream``, or on the current stream."""

    def wait(self, stream: Stream | None = None, /) -> None:
        """Let later work of ``stream``, or of the current stream, wait for this event."""

    def query(self) -> bool:
        """Return whether the last record has been reached; true if there was none."""

    def synchronize(self) -> None:
        """Let the host wait until the last record has been reached."""


@runtime_checkable
class ExternalEvent(Protocol):
    """An event that a captured graph waits for and that is recorded from outside it.

    Unlike an :class:`Event` it may be waited for before it is recorded. The sequence is
    ``wait`` and ``reset`` inside the capture, one ``record`` for each replay outside it.
    """

    def wait(self, stream: Stream, /) -> None:
        """Let later work of the stream wait until the event is recorded."""

    def reset(self, stream: Stream, /) -> None:
        """Make the event unrecorded again, in stream order."""

    def record(self, stream: Stream, /) -> None:
        """Record the event, in stream order."""


class DeviceGraph(Protocol):
    """A captured graph of the device."""

    def replay(self) -> None:
        """Issue the captured work on the current stream."""

    def reset(self) -> None:
        """Release the captured work and its hold on the memory pool."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFigures:
    """Memory of a device, in bytes.

    Attributes:
        allocated: bytes of live tensors of this process.
        reserved: bytes that this process's allocator holds, ``allocated`` included.
        free: bytes that the device could still give to any process.
        total: bytes of the device.
    """

    allocated: int
    reserved: int
    free: int
    total: int


class TaskDevice(Protocol):
    """Streams, events, task groups and weak references of a device."""

    def current_stream(self) -> Stream:
        """Return the stream on which the calling thread issues work."""

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
        """Begin to re-issue the launches of a task group on ``stream``, with new arguments.

        Raises:
            RuntimeError: an unknown handle, ``stream`` is capturing, or an update is open.
        """

    def end_task_update(self, stream: Stream) -> None:
        """End the update; it takes effect in the order of ``stream``."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is capturing."""

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the same storage that does not keep it alive.

        The caller sees to it that the memory outlives every use, as the memory pool of a captured
        graph does until the graph is reset.
        """


class GraphDevice(TaskDevice, Protocol):
    """A device that captures and replays graphs; the seam of this package.

    Attributes:
        name: for messages, such as ``npu:0``.
        torch_device: where its tensors live.
    """

    name: str
    torch_device: torch.device

    def create_memory_pool(self) -> object:
        """Return an opaque handle; graphs captured with the same one share their memory.

        It stays good when all its graphs were reset or failed: what is captured then begins anew.
        """

    def create_graph(self) -> DeviceGraph:
        """Return an empty graph, good for one capture."""

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> AbstractContextManager[object]:
        """Return a context manager in which work is captured into ``graph`` and not run.

        However it is left, the device is not capturing afterwards and the former stream is current
        again. After an exception the graph is empty and may not be used any more, and the exception
        of the body is the one that propagates. It may be left again with an exception: that undoes
        what an interrupt of the first time has left, and nothing else.

        Args:
            graph: an empty graph of this device.
            pool: a handle of :meth:`create_memory_pool`.
            stream: the capture stream, never the default stream; without it the device uses one of
                its own.

        Raises:
            RuntimeError: the stream is the default one or already capturing, the graph has been
                captured before, or the device refuses what was captured.
        """

    def synchronize(self) -> None:
        """Let the host wait for all work of the device."""

    def empty_cache(self) -> None:
        """Give the allocator's unused memory back to the device."""

    def memory_figures(self) -> MemoryFigures:
        """Return the current memory figures."""

    def free_streams(self) -> int | None:
        """Return how many streams the device can still give to whoever asks, or ``None``.

        A captured graph takes at least one for each stream that it was captured on, until it is
        reset; where the device takes them only while a graph runs, none. ``None`` where the device
        does not tell.
        """


class ExpectedStep(Protocol):
    """Tells of each thread what it is about to replay.

    Attributes:
        step: any object; ``None`` where nobody said.
    """

    step: object


@runtime_checkable
class GuardingDevice(Protocol):
    """An optional part of a device: its graphs ask before they are replayed.

    A captured graph may wait for what comes from outside, for instance for updates of its
    attention. Replayed in the place of another graph it would wait for ever. Whoever captures
    such work guards the graph, and whoever brackets a replay says what it expects.
    """

    @property
    def expected_replay(self) -> ExpectedStep:
        """What the calling thread is about to replay."""

    def guard_replays(self, refusal: Callable[[object], str | None]) -> bool:
        """Ask before each replay of the graph that this thread captures now.

        Args:
            refusal: returns why the replay is refused, or ``None``; is given the ``step`` of
                `expected_replay`. It must not keep the graph alive.

        Returns:
            Whether there is such a graph, captured by :meth:`GraphDevice.capture`.
        """

    def is_guarded(self, graph: object) -> bool:
        """Return whether a replay of the graph may be refused."""


@runtime_checkable
class SnapshotDevice(Protocol):
    """An optional part of a device: it can tell its allocator's blocks."""

    def memory_snapshot(self) -> Mapping[str, Any]:
        """Return the ``segments`` of the allocator with their blocks, and what else there is.

        In the form that pytorch.org/memory_viz reads, pickled.
        """


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AllocatorRecord:
    """What a caching allocator holds, and what it did; in the form of torch's snapshots.

    Attributes:
        segments: with their blocks, none expandable, each with the id of its pool.
        entries: allocations, releases and more, in order. Where the version of the allocator does
            not say in which pool one is made, its segment does.
    """

    segments: tuple[Mapping[str, Any], ...]
    entries: tuple[Mapping[str, Any], ...]


class AllocatorHistory(Protocol):
    """What the allocator of a device does is written down as long as this is held."""

    def take(self) -> AllocatorRecord | None:
        """Return what it holds now, and what it did since the last time; ``None`` if not all."""

    def end(self) -> None:
        """Write nothing down any more."""


@runtime_checkable
class HistoryDevice(Protocol):
    """An optional part of a device: its allocator can write down what it does."""

    def begin_history(self) -> AllocatorHistory | None:
        """Begin to write down allocations and releases; ``None`` where somebody does so already."""
