"""A model of a device whose streams advance only when, and in the order, that the test says.

It is for the order of things: queued work runs nowhere but in `ScheduledDevice.advance` and
`drain`, one item at a time, from a stream drawn by the caller's random generator. So a test can
leave the device any number of steps behind the host and try any interleaving of its streams, again
and again by seed. Work that can never run is a `DeadlockError`, not a hang.

It models what a captured graph with updatable launches needs: streams, events, external events,
capture, task groups and task updates, and by choice a launch queue: then what a stream is given
reaches it only when the queue is flushed, by a replay among others, but for direct streams.
Launches are Python functions; see `attn_update.testing.ScheduledOperators` for attention on it.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from attn_update.task_device import Event, Stream


class DeadlockError(RuntimeError):
    """Queued work remains and none of it can ever run."""


@dataclass(kw_only=True, eq=False)
class _Item:
    what: str
    run: Callable[[], None]
    ready: Callable[[], bool] = field(default=lambda: True)


def _own(stream: Stream) -> ScheduledStream:
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
        self.items: deque[_Item] = deque()
        self.graph: ScheduledGraph | None = None
        self.group: list[_Item] | None = None
        self.rewritten: list[_Item] | None = None
        self._device = device

    def push(self, item: _Item) -> None:
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
        queue = self._device.current_stream() if stream is None else _own(stream)

        def record() -> None:
            self._mark = _Mark()
            queue.items.append(_Item(what="event record", run=self._mark.set))

        queue.submit(record)

    def wait(self, stream: Stream | None = None, /) -> None:
        """Let later work of the stream wait; nothing to wait for if never recorded."""
        queue = self._device.current_stream() if stream is None else _own(stream)

        def wait() -> None:
            mark = self._mark
            if mark is not None:
                queue.items.append(
                    _Item(what="event wait", run=lambda: None, ready=lambda: mark.done)
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
        _own(stream).push(_Item(what=what, run=self._unset, ready=lambda: self.is_set))

    def reset(self, stream: Stream, /) -> None:
        """Do nothing: the wait unsets."""

    def record(self, stream: Stream, /) -> None:
        """Set the event after all work of the stream."""
        _own(stream).push(_Item(what=f"record of external event {self._name}", run=self._set))

    def _set(self) -> None:
        self.is_set = True

    def _unset(self) -> None:
        self.is_set = False


class ScheduledGraph:
    """What a capture recorded; `ScheduledDevice.capture` fills it."""

    def __init__(self, device: ScheduledDevice) -> None:
        self.items: list[_Item] = []
        self._device = device

    def replay(self) -> None:
        """Queue the captured work on the current stream; flushes the launch queue."""
        stream = self._device.current_stream()
        for item in self.items:
            stream.push(item)
        self._device.flush_launches()


class ScheduledDevice:
    """A device model that fits `attn_update.TaskDevice`; see the module.

    Attributes:
        num_synchronisations: How often the host asked to wait for the device.
        num_launches: How many launches were asked for, rewriting ones included.
        failing: Launches, by number from now on, that raise: ``{0: error}`` fails the next.
        launch_queue: What has been asked for and has not reached the streams.

    Args:
        has_launch_queue: Whether streams are given work through a queue.
    """

    def __init__(self, *, has_launch_queue: bool = False) -> None:
        self.launch_queue: deque[Callable[[], None]] = deque()
        self._has_launch_queue = has_launch_queue
        self.num_synchronisations = 0
        self.num_launches = 0
        self.failing: dict[int, Exception] = {}
        self._streams: list[ScheduledStream] = []
        self._current = self.create_stream()
        self._num_external_events = 0

    def current_stream(self) -> ScheduledStream:
        """Return the stream that launches go to."""
        return self._current

    def create_stream(self, *, priority: int = 0) -> ScheduledStream:
        """Return a new stream; the model knows no priorities."""
        del priority
        return self._new_stream(is_direct=not self._has_launch_queue)

    def create_direct_stream(self) -> ScheduledStream:
        """Return a new stream without the launch queue."""
        return self._new_stream(is_direct=True)

    def flush_launches(self) -> None:
        """Give the streams all that stands in the launch queue."""
        while self.launch_queue:
            self.launch_queue.popleft()()

    def _new_stream(self, *, is_direct: bool) -> ScheduledStream:
        name = f"stream {len(self._streams)}"
        self._streams.append(ScheduledStream(self, name, is_direct=is_direct))
        return self._streams[-1]

    @contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Launch on `stream` inside the context."""
        previous, self._current = self._current, _own(stream)
        try:
            yield
        finally:
            self._current = previous

    def create_event(self) -> ScheduledEvent:
        """Return a new event."""
        return ScheduledEvent(self)

    def create_external_event(self) -> ScheduledExternalEvent:
        """Return a new external event, unset."""
        self._num_external_events += 1
        return ScheduledExternalEvent(str(self._num_external_events - 1))

    def begin_task_group(self, stream: Stream) -> None:
        """Collect the launches captured on the stream."""
        queue = _own(stream)
        if queue.graph is None or queue.group is not None:
            raise RuntimeError("a task group is begun once, on a stream that is captured")
        queue.group = []

    def end_task_group(self, stream: Stream) -> object:
        """End the group and return its handle."""
        queue = _own(stream)
        group, queue.group = queue.group, None
        if group is None:
            raise RuntimeError("there is no task group to end")
        return group

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Let the launches on the stream rewrite those of the group."""
        assert isinstance(handle, list)  # noqa: S101
        queue = _own(stream)
        if not queue.is_direct:
            self.flush_launches()
        if queue.rewritten is not None:
            raise RuntimeError("a task update is open on this stream already")
        queue.rewritten = list(handle)

    def end_task_update(self, stream: Stream) -> None:
        """End the rewriting; all launches of the group must have been rewritten."""
        queue = _own(stream)
        left, queue.rewritten = queue.rewritten, None
        if left is None:
            raise RuntimeError("there is no task update to end")
        if left:
            raise RuntimeError(f"{len(left)} launches of the task group were not rewritten")

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured."""
        return self._current.graph is not None

    def weak_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor over the same memory that does not keep it alive."""
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
        flat = torch.frombuffer(memory, dtype=tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def launch_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as a launch holds it: a captured launch does not keep memory alive."""
        stream = self._current
        captured = stream.graph is not None or stream.rewritten is not None
        return self.weak_reference(tensor) if captured else tensor

    def create_graph(self) -> ScheduledGraph:
        """Return an empty graph."""
        return ScheduledGraph(self)

    @contextmanager
    def capture(self, graph: ScheduledGraph) -> Iterator[None]:
        """Record the work of the current stream into the graph instead of queueing it."""
        stream = self._current
        stream.graph = graph
        try:
            yield
        finally:
            stream.graph = None
            stream.group = None

    def launch(self, what: str, run: Callable[[], None]) -> None:
        """Queue, capture or rewrite one launch on the current stream.

        Args:
            what: Names the launch when it is stuck.
            run: Does the work.

        Raises:
            Exception: The one that `failing` has for this launch.
        """
        self.num_launches += 1
        self.failing = {number - 1: error for number, error in self.failing.items()}
        if -1 in self.failing:
            raise self.failing.pop(-1)
        stream = self._current
        if stream.rewritten is not None:
            if not stream.rewritten:
                raise RuntimeError("more launches than the task group has")
            captured = stream.rewritten.pop(0)
            stream.push(_Item(what=f"rewrite of {what}", run=lambda: setattr(captured, "run", run)))
            return
        item = _Item(what=what, run=run)
        stream.push(item)
        if stream.group is not None:
            stream.group.append(item)

    def advance(self, random: Random, num_items: int) -> int:
        """Run up to `num_items` items, each from a stream drawn from those that can run.

        Returns:
            How many ran: fewer than asked when nothing more could, for now or for ever.
        """
        for count in range(num_items):
            if self.launch_queue and random.random() < 0.5:
                self.launch_queue.popleft()()
            ready = [s for s in self._streams if s.items and s.items[0].ready()]
            if not ready:
                return count
            random.choice(ready).items.popleft().run()
        return num_items

    def drain(
        self,
        *,
        random: Random | None = None,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Run until all streams are empty, or until `until` says so.

        Args:
            random: Draws the stream to run next; without it the first that can run.
            until: Ends the run early.

        Raises:
            DeadlockError: No stream can run; the message says what each waits for.
        """
        self.flush_launches()
        while not (until is not None and until()):
            ready = [s for s in self._streams if s.items and s.items[0].ready()]
            if not ready:
                stuck = [f"{s.name}: {s.items[0].what}" for s in self._streams if s.items]
                if stuck:
                    raise DeadlockError(f"nothing can run; {'; '.join(stuck)}")
                return
            stream = ready[0] if random is None else random.choice(ready)
            stream.items.popleft().run()
