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
from typing import TYPE_CHECKING

import torch

from attn_update.testing.scheduled_stream import (
    Item,
    ScheduledEvent,
    ScheduledExternalEvent,
    ScheduledGraph,
    ScheduledStream,
    own_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from attn_update.task_device import Stream


class DeadlockError(RuntimeError):
    """Queued work remains and none of it can ever run."""


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
        previous, self._current = self._current, own_stream(stream)
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
        queue = own_stream(stream)
        if queue.graph is None or queue.group is not None:
            raise RuntimeError("a task group is begun once, on a stream that is captured")
        queue.group = []

    def end_task_group(self, stream: Stream) -> object:
        """End the group and return its handle."""
        queue = own_stream(stream)
        group, queue.group = queue.group, None
        if group is None:
            raise RuntimeError("there is no task group to end")
        return group

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Let the launches on the stream rewrite those of the group."""
        assert isinstance(handle, list)  # noqa: S101
        queue = own_stream(stream)
        if not queue.is_direct:
            self.flush_launches()
        if queue.rewritten is not None:
            raise RuntimeError("a task update is open on this stream already")
        queue.rewritten = list(handle)

    def end_task_update(self, stream: Stream) -> None:
        """End the rewriting; all launches of the group must have been rewritten."""
        queue = own_stream(stream)
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
            stream.push(Item(what=f"rewrite of {what}", run=lambda: setattr(captured, "run", run)))
            return
        item = Item(what=what, run=run)
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
