"""Streams and events of the fake device."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from npu_graph_runtime.devices.fake_scheduler import Work, device_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime.device import Event, Stream
    from npu_graph_runtime.devices.fake_graph import FakeGraph, FakeTaskGroup, Launch
    from npu_graph_runtime.devices.fake_scheduler import FakeScheduler


class FakeStream:
    """An in-order queue of a fake device; created by ``FakeDevice.create_stream``.

    Attributes:
        name: name for messages.
        pending: work not run yet, oldest first.
        is_direct: whether work bypasses the device's launch queue.
        capture: the graph that this stream is being captured into, or ``None``.
        group: the open task group, or ``None``.
        update: the open task update with the launches so far, or ``None``.
    """

    def __init__(self, scheduler: FakeScheduler, *, is_direct: bool = True) -> None:
        self.name = f"stream {next(scheduler.numbers)}"
        self.pending: collections.deque[Work] = collections.deque()
        self.is_direct = is_direct
        self.capture: FakeGraph | None = None
        self.group: FakeTaskGroup | None = None
        self.update: tuple[FakeTaskGroup, list[Launch]] | None = None
        self._scheduler = scheduler

    def __repr__(self) -> str:
        return f"<FakeStream {self.name}>"

    @property
    def is_blocked(self) -> bool:
        """Whether work of this stream waits for something, or for permission to run."""
        return bool(self.pending) or self._scheduler.is_held

    def wait_event(self, event: Event, /) -> None:
        """Make later work of this stream wait for the event."""
        event.wait(self)

    def wait_stream(self, stream: Stream, /) -> None:
        """Make later work of this stream wait for the present work of ``stream``."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record the event, or a new one, and return it."""
        if event is None:
            event = FakeEvent(self._scheduler)
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Block the host until the stream is empty.

        Raises:
            RuntimeError: Something is being captured, or a kernel failed.
            DeadlockError: Nothing can release the stream.
        """
        self._scheduler.synchronize(self.name, lambda: not self.pending)

    def query(self) -> bool:
        """Return whether the stream is empty.

        Raises:
            RuntimeError: something is being captured.
        """
        self._scheduler.refuse_while_capturing(f"querying {self.name}")
        self._scheduler.flush()
        return not self.pending

    def issue(self, work: Work) -> None:
        """Append work to the graph that the stream is captured into, or else to its queue."""
        if self.capture is not None:
            self.capture.append(self, work)
        else:
            self.launch(lambda: self.add(work))

    def add(self, work: Work) -> None:
        """Append work to the stream's own queue, at once."""
        self._scheduler.add(self, work)

    def launch(self, launch: Callable[[], None]) -> None:
        """Run a function that adds work to the stream: now, or when the launch queue reaches it."""
        if self.is_direct:
            launch()
        else:
            self._scheduler.put_off(launch)


class FakeEvent:
    """An event of a fake device; created by ``FakeDevice.create_event``."""

    def __init__(self, scheduler: FakeScheduler) -> None:
        self._scheduler = scheduler
        # What the launch queue has not come to is asked for, and not issued yet.
        self._num_asked = 0
        self._num_issued = 0
        self._num_reached = 0
        self._captured: tuple[FakeGraph, FakeStream, int] | None = None

    def record(self, stream: Stream | None = None, /) -> None:
        """Record on ``stream``, or on the current stream."""
        on = own_stream(stream, self._scheduler)
        with self._scheduler.lock:
            if on.capture is not None:
                self._captured = (on.capture, on, on.capture.mark(on))
                return
            self._captured = None
            self._num_asked += 1
            on.launch(lambda: self._issue_record(on))

    def wait(self, stream: Stream | None = None, /) -> None:
        """Make later work of ``stream``, or of the current stream, wait for this event.

        Raises:
            RuntimeError: A capturing stream would wait for work outside its capture, or the event
                belongs to another capture.
        """
        on = own_stream(stream, self._scheduler)
        with self._scheduler.lock:
            if self._captured is not None:
                graph, recorded_on, mark = self._captured
                graph.join(on, recorded_on, mark)
            elif on.capture is not None and self._num_asked:
                raise device_failure(
                    107024, f"{on.name} is capturing and waits for an event recorded outside"
                )
            elif on.capture is None:
                on.launch(lambda: self._issue_wait(on))

    def query(self) -> bool:
        """Return whether the last record has been reached.

        Raises:
            RuntimeError: something is being captured.
        """
        self._scheduler.refuse_while_capturing("querying an event")
        return self._num_reached >= self._num_asked

    def synchronize(self) -> None:
        """Block the host until the last record has been reached.

        Raises:
            RuntimeError: Something is being captured, or a kernel failed.
            DeadlockError: Nothing can reach the record.
        """
        self._scheduler.synchronize("an event", lambda: self._num_reached >= self._num_asked)

    def _issue_record(self, stream: FakeStream) -> None:
        number = self._num_issued = self._num_issued + 1

        def reach() -> bool:
            self._num_reached = max(self._num_reached, number)
            return True

        stream.add(Work("the record of an event", reach))

    def _issue_wait(self, stream: FakeStream) -> None:
        number = self._num_issued
        if number:
            what = "an event recorded on another stream"
            stream.add(Work(what, lambda: self._num_reached >= number))


class FakeExternalEvent:
    """An external event of a fake device; created by ``FakeDevice.create_external_event``.

    Behaves like torch_npu's event over a device word: a wait blocks until the word is 1 and sets it
    to 0 in one step, a record sets it to 1, and reset does nothing.
    """

    def __init__(self, scheduler: FakeScheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._is_waited = False

    def wait(self, stream: Stream | None = None, /) -> None:
        """Make later work of the stream wait until the event is recorded, then reset it.

        Raises:
            RuntimeError: a second wait without a record in between.
        """
        with self._scheduler.lock:
            if self._is_waited:
                raise RuntimeError(
                    "FakeDevice: an external event is waited for twice after one record; "
                    "make one external event for each wait of a graph"
                )
            self._is_waited = True
            what = f"an external event that was never recorded ({id(self):#x})"
            own_stream(stream, self._scheduler).issue(Work(what, self._take))

    def reset(self, stream: Stream | None = None, /) -> None:
        """Do nothing: the wait has reset the event."""
        own_stream(stream, self._scheduler)

    def record(self, stream: Stream | None = None, /) -> None:
        """Record the event, in stream order."""
        with self._scheduler.lock:
            self._is_waited = False
            what = "the record of an external event"
            own_stream(stream, self._scheduler).issue(Work(what, self._set))

    def _set(self) -> bool:
        self._is_set = True
        return True

    def _take(self) -> bool:
        """Set the word to 0 and return whether it was 1."""
        was_set, self._is_set = self._is_set, False
        return was_set


def own_stream(stream: object, scheduler: FakeScheduler) -> FakeStream:
    """Return the given stream, or the current one.

    Raises:
        TypeError: The stream belongs to another device.
    """
    if stream is None:
        return scheduler.current
    if not isinstance(stream, FakeStream):
        raise TypeError(
            f"using a stream on FakeDevice: got {type(stream).__name__}, expected a stream made by "
            "FakeDevice.create_stream"
        )
    return stream
