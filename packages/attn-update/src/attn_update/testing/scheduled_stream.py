"""Streams, events and graphs of a `ScheduledDevice`: queues of work that the device runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.task_device import Event, Stream
    from attn_update.testing.scheduled_device import ScheduledDevice


@dataclass(kw_only=True, eq=False)
class Item:
    """Work that a stream holds: what it is, how it runs, and when it can."""

    what: str
    run: Callable[[], None]
    ready: Callable[[], bool] = field(default=lambda: True)


def own_stream(stream: Stream) -> ScheduledStream:
    """Return a stream as one of a scheduled device."""
    assert isinstance(stream, ScheduledStream), "a stream of another device"  # noqa: S101
    return stream


@dataclass(kw_only=True)
class _Mark:
    done: bool = False

    def set(self) -> None:
        self.done = True


class ScheduledStream:
    """A queue of work of a `ScheduledDevice`; made by `ScheduledDevice.create_stream`."""

    def __init__(self, device: ScheduledDevice, name: str, *, is_direct: bool) -> None:
        self.name = name
        self.is_direct = is_direct
        self.items: deque[Item] = deque()
        self.graph: ScheduledGraph | None = None
        self.group: list[Item] | None = None
        self.rewritten: list[Item] | None = None
        self._device = device

    def push(self, item: Item) -> None:
        """Queue work, or record it if the stream is captured."""
        if self.graph is None:
            self.submit(lambda: self.items.append(item))
        else:
            self.graph.items.append(item)

    def submit(self, action: Callable[[], None]) -> None:
        """Do what gives the stream work: now, or when the launch queue is flushed."""
        if self.is_direct:
            action()
        else:
            self._device.launch_queue.append(action)

    def wait_event(self, event: Event, /) -> None:
        """Let later work wait for what the event has recorded now."""
        event.wait(self)

    def wait_stream(self, stream: Stream, /) -> None:
        """Let later work wait for all work that `stream` has now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record an event after all work queued now."""
        event = ScheduledEvent(self._device) if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Run the device until this stream is empty; counted as a host synchronisation."""
        self._device.num_synchronisations += 1
        self._device.drain(until=self.query)

    def query(self) -> bool:
        """Return whether the stream is empty."""
        return not self.items


class ScheduledEvent:
    """An event of a `ScheduledDevice`; a wait is for the latest recording made before it."""

    def __init__(self, device: ScheduledDevice) -> None:
        self._device = device
        self._mark: _Mark | None = None

    def record(self, stream: Stream | None = None, /) -> None:
        """Record after all work of the stream."""
        queue = self._device.current_stream() if stream is None else own_stream(stream)

        def record() -> None:
            self._mark = _Mark()
            queue.items.append(Item(what="event record", run=self._mark.set))

        queue.submit(record)

    def wait(self, stream: Stream | None = None, /) -> None:
        """Let later work of the stream wait; nothing to wait for if never recorded."""
        queue = self._device.current_stream() if stream is None else own_stream(stream)

        def wait() -> None:
            mark = self._mark
            if mark is not None:
                queue.items.append(
                    Item(what="event wait", run=lambda: None, ready=lambda: mark.done)
                )

        queue.submit(wait)

    def query(self) -> bool:
        """Return whether the recorded work is done."""
        return self._mark is None or self._mark.done

    def synchronize(self) -> None:
        """Run the device until the event is done; counted as a host synchronisation."""
        self._device.num_synchronisations += 1
        self._device.drain(until=self.query)


class ScheduledExternalEvent:
    """A device word that a wait needs set and leaves unset."""

    def __init__(self, name: str) -> None:
        self.is_set = False
        self._name = name

    def wait(self, stream: Stream, /) -> None:
        """Let later work wait until the event is set; then it is unset."""
        what = f"wait for external event {self._name}"
        own_stream(stream).push(Item(what=what, run=self._unset, ready=lambda: self.is_set))

    def reset(self, stream: Stream, /) -> None:
        """Do nothing: the wait unsets."""

    def record(self, stream: Stream, /) -> None:
        """Set the event after all work of the stream."""
        own_stream(stream).push(Item(what=f"record of external event {self._name}", run=self._set))

    def _set(self) -> None:
        self.is_set = True

    def _unset(self) -> None:
        self.is_set = False


class ScheduledGraph:
    """What a capture recorded; `ScheduledDevice.capture` fills it."""

    def __init__(self, device: ScheduledDevice) -> None:
        self.items: list[Item] = []
        self._device = device

    def replay(self) -> None:
        """Queue the captured work on the current stream; flushes the launch queue."""
        stream = self._device.current_stream()
        for item in self.items:
            stream.push(item)
        self._device.flush_launches()
