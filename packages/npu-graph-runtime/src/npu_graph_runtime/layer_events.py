"""Events inside captured graphs: other streams and host threads learn that a layer has finished."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Protocol

from npu_graph_runtime.device import WrappingDevice
from npu_graph_runtime.errors import LayerEventError, ReplayRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from npu_graph_runtime.device import DeviceGraph, Event, ExternalEvent, GraphDevice, Stream
    from npu_graph_runtime.graph_key import GraphKey

    class _Device(GraphDevice, WrappingDevice, Protocol):
        pass


# Note [how a layer event gets out of a graph]
#
# A captured graph can only record external events: a record writes 1 to a word of device memory, a
# wait waits for 1 and writes 0. torch_npu accepts one wait for each record that it was called for,
# and a captured record is one call however often the graph is replayed. So the wait is captured
# too: each name has a relay, a graph of that one wait, and a step that is asked for the name
# replays the relay on a stream of its own and records an ordinary event after it. Any number of
# consumers wait for the ordinary event.
#
# Two records before one wait are one record, and a word that nobody waited for lets the wait of the
# next step through too early. So a name that nobody asked for in a step is stale in the next one:
# an ordinary event at the end of the replay serves whoever asks, later than need be, and the relay
# clears the word before the replay after that. Whoever asks for the same names in each step pays
# for their relays, a replay pays for nothing but a wait of the device for the last relay. Relays do
# nothing but wait for the replay before, so a slow consumer delays no replay.
#
# A step is begun by the graph itself: the device runs `_Places.replaying` around each launch, so
# there is no replay outside of a step. Nobody can ask for a step before its last graph is launched:
# an event at its end would be recorded in front of it, and a relay would wait for a replay that may
# fail. A step that failed half-way therefore needs no repair. It has left words of any value and
# nobody asked in it, so all names are stale in the next one, which sets all words.
#
# A replay takes no lock unless somebody has asked. It writes `next_graph` and then reads
# `is_asked`; whoever asks writes `is_asked` and then reads `next_graph`. So either the replay sees
# that it was asked, and waits for the lock, or the question sees that the step is over.


class LayerEvents:
    """Tells other streams and host threads when a replay of a captured graph reaches a named place.

    Use it to send the KV cache of a layer while later layers run::

        events = LayerEvents(device)
        decode = GraphedCallable(model, ..., around_capture=events.around_capture)
        # in the model, after a layer wrote its cache
        events.record("layers.0.kv")
        # after each replay, on any thread
        events.current.wait("layers.0.kv", sending_stream)

    Each replay of a graph that records is a step, whatever replays it. Objects may be shared by
    threads. Replays of one key come from one thread at a time. Each key has one graph: callables
    with equal keys need `LayerEvents` of their own. Each name of a key takes one captured graph
    more, with its stream on the device, until it is released.

    Args:
        device: captures and replays the graphs; must have external events, and be a
            `WrappingDevice`, as all devices of this package are.

    Raises:
        LayerEventError: the device is no `WrappingDevice`.
    """

    def __init__(self, device: GraphDevice) -> None:
        if not isinstance(device, WrappingDevice):
            raise LayerEventError(
                f"making layer events of {device.name}: a {type(device).__name__} has no "
                "wrap_replays, expected it, because a step begins where a graph is launched; add "
                "it as npu_graph_runtime.device.WrappingDevice says"
            )
        self._device: _Device = device
        self._stream = device.create_stream()
        # Other threads may replay relays on the other one meanwhile.
        self._capture_stream = device.create_stream()
        self._pool = device.create_memory_pool()
        self._lock = threading.Lock()
        self._places: dict[GraphKey, _Places] = {}
        # torch_npu never frees the word of an external event.
        self._free: list[ExternalEvent] = []
        self._capturing: _Places | None = None
        self._eager: LayerStep | None = None
        self._last_eager: LayerStep | None = None
        # The latest step, or the graph of the latest replay, which makes its step if asked.
        self._current: LayerStep | _Places | None = None
        self._numbers = itertools.count(1)

    @property
    def current(self) -> LayerStep:
        """The latest step: the last replay of a graph that records, or `eager_step`.

        Raises:
            LayerEventError: there was none, or an eager run has called `record` since then.
        """
        current = self._current
        if current is None:
            raise LayerEventError(
                "asking for the current step of layer events: no step was replayed yet, or an "
                "eager run outside of a step has called record() since; ask after the replay of "
                "a graph that was captured with around_capture= of these events, or use "
                "eager_step()"
            )
        return current if isinstance(current, LayerStep) else current.current_step()

    def record(self, name: str) -> None:
        """Record an event after the work launched so far on the current stream.

        In a warm-up run, and in an eager run outside of `eager_step`, nothing is recorded. The
        latter leaves no `current` step.

        Args:
            name: unique in a step.

        Raises:
            LayerEventError: the name was recorded before in this capture or step, or the capture is
                not one of `GraphDevice.capture`.
        """
        places = self._capturing
        if places is not None:
            if self._device.is_capturing():
                _refuse_twice(name, places.events, "capture")
                if not self._device.wrap_replays(places.replaying):
                    raise LayerEventError(
                        f"recording the layer event {name!r} of {places.key}: this thread captures "
                        f"no graph by capture() of {self._device.name}, and no replay would begin "
                        "a step; capture with a CaptureSession, or with the device's capture()"
                    )
                event = self._free.pop() if self._free else self._device.create_external_event()
                places.events[name] = event
                event.record(self._device.current_stream())
        elif self._eager is not None:
            self._eager._record(name)  # noqa: SLF001 - of this file
        else:
            # It would be the step of an earlier run, whose places are reached already.
            self._current = None

    @contextlib.contextmanager
    def around_capture(self, key: GraphKey) -> Iterator[None]:
        """Collect the names that a capture records; for ``GraphedCallable(around_capture=...)``.

        Releases the events of an earlier graph of this key.

        Raises:
            LayerEventError: another capture is under way, or this one has recorded no name.
        """
        if self._capturing is not None:
            raise LayerEventError(
                f"capturing {key} with layer events: another capture of theirs is under way; "
                "captures do not nest"
            )
        self.release(key)
        places = self._capturing = _Places(self, key, self._device, self._stream)
        try:
            yield
            self._capturing = None
            places.end_capture(self._pool, self._capture_stream)
        except BaseException:
            self._free.extend(places.events.values())
            raise
        finally:
            self._capturing = None
        with self._lock:
            self._places[key] = places

    @contextlib.contextmanager
    def eager_step(self) -> Iterator[LayerStep]:
        """Record ordinary events in a block that runs eagerly, and make it the current step."""
        if self._eager is not None or self._capturing is not None:
            raise LayerEventError(
                "beginning an eager step of layer events: a step or a capture is under way"
            )
        if self._last_eager is not None:
            self._last_eager.is_over = True
            for reader in self._last_eager.readers:
                self._device.current_stream().wait_event(reader)
        step = LayerStep(self._device, next(self._numbers), None)
        self._eager = self._last_eager = self._current = step
        try:
            yield step
        finally:
            self._eager = None

    def release(self, key: GraphKey) -> None:
        """Release the events of a key, after its graph was released; waits for the device.

        A replay of this graph raises `ReplayRefusedError` from now on.

        Args:
            key: of a captured graph; an unknown one is no error.
        """
        with self._lock:
            places = self._places.pop(key, None)
        if places is not None:
            self._free.extend(places.release())


class LayerStep:
    """The named places of one step. Made by `LayerEvents`.

    Attributes:
        number: of the step, counted from 1 over the steps of all keys that somebody asked for.
        readers: events that the next step waits for.
        is_over: whether that has begun, of an eager step.
    """

    def __init__(self, device: GraphDevice, number: int, places: _Places | None) -> None:
        self.number = number
        self._device = device
        self._places = places
        self._events: dict[str, Event] = {}
        self.readers: list[Event] = []
        self.is_over = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names recorded in this step, in order."""
        return tuple(self._events if self._places is None else self._places.relays)

    def wait(self, name: str, stream: Stream | None = None) -> None:
        """Let later work of a stream wait until the step reaches a place; the host does not wait.

        Ask for names in the order of the step: an earlier name asked for later is seen later. A
        name that nobody asked for in the previous step of its graph is reached at the end of the
        replay.

        Args:
            name: a recorded name.
            stream: of the same device; the current one by default.

        Raises:
            LayerEventError: an unknown name, or a later step of this graph has begun.
        """
        event = self._event(name)
        (self._device.current_stream() if stream is None else stream).wait_event(event)

    def synchronize(self, name: str) -> None:
        """Let the calling thread wait until the step reaches a place.

        Raises:
            LayerEventError: as for `wait`.
        """
        self._event(name).synchronize()

    def is_reached(self, name: str) -> bool:
        """Return whether the step is known to have reached a place; the host does not wait.

        The first question about a name in a step begins to watch it, so ask again.

        Raises:
            LayerEventError: as for `wait`.
        """
        return self._event(name).query()

    def done_reading(self, stream: Stream | None = None) -> None:
        """Let the next replay of this step's graph wait for the present work of a stream.

        Without it, a replay may overwrite what a slow reader still reads. The device waits, the
        host does not. Replays of other graphs do not wait, and neither do eager steps. After an
        eager step, the next `eager_step` waits, but no replay does.

        Args:
            stream: of the reader, after its reads were launched; the current one by default.

        Raises:
            LayerEventError: a later step of this graph has begun.
        """
        event = self._device.create_event()
        event.record(self._device.current_stream() if stream is None else stream)
        if self._places is not None:
            self._places.await_reader(event, self)
        elif self.is_over:
            raise _over(self, "noting a reader")
        else:
            self.readers.append(event)

    def _record(self, name: str) -> None:
        _refuse_twice(name, self._events, "step")
        event = self._device.create_event()
        event.record(self._device.current_stream())
        self._events[name] = event

    def _event(self, name: str) -> Event:
        if self._places is None:
            event = self._events.get(name)
            if event is None:
                raise _unknown(name, self.names)
            return event
        return self._places.event_of(name, self)


# `_Places.next_graph`, which is else the number of the graph that may be launched next.
_COMPLETE, _UNFINISHED = 0, -1


class _Places:
    """What one captured graph, or its segments, records, and how its events are waited for."""

    def __init__(self, owner: LayerEvents, key: GraphKey, device: _Device, stream: Stream) -> None:
        self._owner = owner
        self.key = key
        self._device = device
        self._stream = stream
        self.events: dict[str, ExternalEvent] = {}
        self.relays: dict[str, DeviceGraph] = {}
        self._lock = threading.Lock()
        self._asked: dict[str, Event] = {}
        self._late: dict[str, Event] = {}
        self._latest: Event | None = None  # after the relay that was replayed last
        self._is_relaying = False  # or it failed, and what was replayed after `_latest` is unknown
        self._fresh: set[str] = set()  # whose words were 0 before the replay
        self._next_fresh: set[str] = set()
        self._step: LayerStep | None = None
        self._replaying: object = None  # identity of the stream
        self._num_graphs = 0
        self._next_graph = _UNFINISHED
        # The next replay may not do without the lock.
        self._is_asked = True
        self._makes_steps = False  # not while it is captured, and not after its release

    def end_capture(self, pool: object, stream: Stream) -> None:
        """Make the relays, and let them clear all words."""
        if not self.events:
            raise LayerEventError(
                f"capturing {self.key} with layer events: the function has recorded no name, and "
                "`current` would stay at the step of another graph; call record() in it, or "
                "capture it without around_capture= of these events"
            )
        self._device.synchronize()
        for name, event in self.events.items():
            self.relays[name] = self._waiting_graph(event, pool, stream)
        # A breakable capture has replayed its segments, a whole one has not: set each word, and let
        # the relay clear it.
        for event in self.events.values():
            event.record(self._stream)
        self._replay(*self.relays.values())
        self._device.synchronize()
        self._next_fresh = set(self.events)
        self._makes_steps = True

    def replaying(
        self, launch: Callable[[DeviceGraph], None], graph: Callable[[], DeviceGraph]
    ) -> Callable[[], None]:
        """Return a function that launches the next graph of the capture as its part of a step."""
        number = self._num_graphs
        self._num_graphs += 1
        owner, identity = self._owner, self._device.stream_identity

        # Every replay runs this, also if nobody waits for events.
        def replay() -> None:
            if number:
                is_of_step = self._follows(number)
            else:
                self._next_graph = _UNFINISHED
                is_of_step = not self._is_asked or self._begin()
            if not is_of_step:
                launch(graph())
                return
            self._replaying = identity()
            launch(graph())
            if number + 1 < self._num_graphs:
                self._next_graph = number + 1
            else:
                self._next_graph = _COMPLETE
                owner._current = self  # noqa: SLF001 - of this file

        return replay

    def _follows(self, number: int) -> bool:
        """Return whether the segments before this one belong to a step."""
        if not self._makes_steps:
            self._refuse_released()
            return False
        if self._next_graph != number:
            raise ReplayRefusedError(
                f"replaying segment {number} of {self.key} with layer events: the segments before "
                "it were not replayed, or one has failed, and its events would be those of no "
                "step; replay all segments in order, with replay() of the whole graph"
            )
        self._next_graph = _UNFINISHED
        return True

    def _begin(self) -> bool:
        """Clear the words of names asked for too late; return whether a step begins."""
        if not self._makes_steps:
            self._refuse_released()
            return False
        stream = self._device.current_stream()
        with self._lock:
            for reader in () if self._step is None else self._step.readers:
                stream.wait_event(reader)
            self._step = None
            self._fresh, self._next_fresh = self._next_fresh, set()
            if self._is_relaying:
                self._fresh.clear()
            if self._late or self._is_relaying:
                self._is_relaying = True
                # Only when the replay has set the word again.
                for event in self._late.values():
                    self._stream.wait_event(event)
                late, self._late = self._late, {}
                self._replay(*(self.relays[name] for name in late))
                self._note_relays()
            self._asked = {}
            if self._latest is not None:
                stream.wait_event(self._latest)
            self._is_asked = bool(self._fresh)
        return True

    def current_step(self) -> LayerStep:
        """Return the step of the latest replay; if the next one has begun, a step that is over."""
        with self._lock:
            step = self._step
            if step is None:
                self._is_asked = True
                number = next(self._owner._numbers)  # noqa: SLF001 - of this file
                step = LayerStep(self._device, number, self)
                if self._next_graph == _COMPLETE:
                    self._step = step
            return step

    def event_of(self, name: str, step: LayerStep) -> Event:
        """Return an ordinary event that is reached where the step reaches a place."""
        with self._lock:
            self._refuse_over(step, f"waiting for {name!r}")
            event = self._asked.get(name) or self._late.get(name)
            if event is not None:
                return event
            relay = self.relays.get(name)
            if relay is None:
                raise _unknown(name, tuple(self.relays))
            if name in self._fresh:
                self._is_relaying = True
                self._replay(relay)
                event = self._asked[name] = self._note_relays()
            else:
                event = self._device.create_event()
                event.record(self._device.stream_of(self._replaying))
                self._late[name] = event
            self._next_fresh.add(name)
            return event

    def await_reader(self, event: Event, step: LayerStep) -> None:
        """Let the next replay wait for an ordinary event."""
        with self._lock:
            self._refuse_over(step, "noting a reader")
            step.readers.append(event)

    def release(self) -> list[ExternalEvent]:
        """Release the relays and return the events."""
        with self._lock:
            self._makes_steps, self._is_asked = False, True
            self._step, self._next_graph = None, _UNFINISHED
        self._device.synchronize()
        for graph in self.relays.values():
            graph.reset()
        self.relays = {}
        return list(self.events.values())

    def _refuse_released(self) -> None:
        if self._owner._capturing is not self:  # noqa: SLF001 - of this file
            raise ReplayRefusedError(
                f"replaying a graph of {self.key}: its layer events were released, by release() or "
                "by a later capture of the same key, which may use them now; release the graph "
                "before its events, and give each callable LayerEvents of its own"
            )

    def _refuse_over(self, step: LayerStep, doing: str) -> None:
        self._is_asked = True
        if self._step is not step or self._next_graph != _COMPLETE:
            raise _over(step, doing)

    def _note_relays(self) -> Event:
        event = self._latest = self._device.create_event()
        event.record(self._stream)
        self._is_relaying = False
        return event

    def _replay(self, *graphs: DeviceGraph) -> None:
        with self._device.use_stream(self._stream):
            for graph in graphs:
                graph.replay()

    def _waiting_graph(self, event: ExternalEvent, pool: object, stream: Stream) -> DeviceGraph:
        graph = self._device.create_graph()
        with self._device.capture(graph, pool=pool, stream=stream):
            event.wait(stream)
            event.reset(stream)
        return graph


def _refuse_twice(name: str, recorded: Collection[str], what: str) -> None:
    if name in recorded:
        raise LayerEventError(
            f"recording the layer event {name!r}: the name was recorded before in this {what}; "
            "give each place a name of its own"
        )


def _over(step: LayerStep, doing: str) -> LayerEventError:
    return LayerEventError(
        f"{doing} of step {step.number}: the graph was replayed again or released, or a later "
        "replay has failed, and its memory belongs to a later step; use a step before its graph is "
        "replayed again"
    )


def _unknown(name: str, names: tuple[str, ...]) -> LayerEventError:
    known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return LayerEventError(
        f"waiting for the layer event {name!r}: the step has recorded {known or 'no event'}; call "
        "record() with this name in the function that is captured"
    )
