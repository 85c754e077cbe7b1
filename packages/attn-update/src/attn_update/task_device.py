"""What this package needs of a device: streams, events, task groups.

These are Protocols. The objects of `torch.npu` fit `Stream`, `Event` and `ExternalEvent` as they
are; `npu_graph_runtime`'s devices fit `TaskDevice`. This package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor


class Stream(Protocol):
    """A queue of device work that runs in order."""

    def wait_event(self, event: Event, /) -> None:
        """Let all later work of this stream wait for the event, on the device."""

    def wait_stream(self, stream: Stream, /) -> None:
        """Let all later work of this stream wait for all work that `stream` has now."""

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record the event, or a new one, after all work that this stream has now."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""

    def query(self) -> bool:
        """Return whether the stream is empty."""


class Event(Protocol):
    """A point in a stream that other streams can wait for."""

    def record(self, stream: Stream | None = None, /) -> None:
        """Record the event after all work of the stream (default: the current one)."""

    def wait(self, stream: Stream | None = None, /) -> None:
        """Let all later work of the stream (default: the current one) wait for the event."""

    def query(self) -> bool:
        """Return whether the recorded work is done."""

    def synchronize(self) -> None:
        """Block the host until the recorded work is done."""


class ExternalEvent(Protocol):
    """An event that a captured graph waits for and that is set from outside the graph.

    A device word: `wait` blocks the stream until the word is one and leaves it zero, `record`
    makes it one. One record serves one wait.
    """

    def wait(self, stream: Stream, /) -> None:
        """Let all later work of the stream wait until the event is recorded."""

    def reset(self, stream: Stream, /) -> None:
        """Unset the event, in the order of the stream, where `wait` does not do so itself."""

    def record(self, stream: Stream, /) -> None:
        """Set the event after all work of the stream."""


class TaskDevice(Protocol):
    """The part of a device that records and updates captured launches."""

    def current_stream(self) -> Stream:
        """Return the stream that operators are launched on by this thread."""

    def create_stream(self, *, priority: int = 0) -> Stream:
        """Return a new stream; a lower number is a higher priority."""

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Launch on `stream` inside the context."""

    def create_event(self) -> Event:
        """Return a new event."""

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event, unset."""

    def begin_task_group(self, stream: Stream) -> None:
        """Begin to collect the launches captured on `stream` into a task group."""

    def end_task_group(self, stream: Stream) -> object:
        """End the task group and return its handle, which only this device understands."""

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Begin to rewrite a task group: launches on `stream` replace the captured arguments."""

    def end_task_update(self, stream: Stream) -> None:
        """End the rewriting, which takes effect in the order of `stream`."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured."""

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the same memory that does not keep the memory alive."""
