"""Events inside captured graphs: other streams and host threads learn that a layer has finished."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from npu_graph_runtime.device import GuardingDevice
from npu_graph_runtime.errors import LayerEventError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import DeviceGraph, Event, ExternalEvent, GraphDevice, Stream
    from npu_graph_runtime.graph_key import GraphKey

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


class LayerEvents:
    """Tells other streams and host threads when a replay of a captured graph reaches a named place.

    Use it to send the KV cache of a layer while later layers run::

        events = LayerEvents(device)
        decode = GraphedCallable(
            model, ..., around_capture=events.around_capture, around_replay=events.around_replay
        )
        # in the model, after a layer wrote its cache
        events.record("layers.0.kv")
        # after each replay, on any thread
        events.current.wait("layers.0.kv", sending_stream)

    Objects may be shared by threads. Replays of one key come from one thread at a time. Each name
    of a key takes one captured graph more, with its stream on the device, until it is released.

    Args:
        device: captures and replays the graphs; must have external events.
    """

    def __init__(self, device: GraphDevice) -> None:
        self._device = device
        self._stream = device.create_stream()
        self._pool = device.create_memory_pool()
        self._lock = threading.Lock()
        self._places: dict[GraphKey, _Places] = {}
        # torch_npu never frees the word of an external event.
        self._free: list[ExternalEvent] = []
        self._captured: dict[str, ExternalEvent] | None = None
        self._replays: _Replays | None = None
        self._eager: LayerStep | None = None
        # The latest step, or the graph of the latest replay, which makes its step if asked.
        self._current: LayerStep | _Places | None = None
        self._latest: _Places | None = None
        self._num_steps = 0

    @property
    def current(self) -> LayerStep:
        """The step that was replayed, or run in `eager_step`, last.

        Raises:
            LayerEventError: there was none.
        """
        current = self._current
        if current is None:
            raise LayerEventError(
                "asking for the current step of layer events: no step was replayed yet; ask after "
                "the first replay"
            )
        return current if isinstance(current, LayerStep) else current.current_step()

    def record(self, name: str) -> None:
        """Record an event after the work launched so far on the current stream.

        In a warm-up run, and in an eager run outside of `eager_step`, nothing is recorded.

        Args:
            name: unique in a step.

        Raises:
            LayerEventError: the name was recorded before in this capture or step.
        """
        captured = self._captured
        if captured is not None:
            if self._device.is_capturing():
                _refuse_twice(name, captured, "capture")
                event = self._free.pop() if self._free else self._device.create_external_event()
                captured[name] = event
                assert self._replays is not None  # noqa: S101
                self._replays.guard(self._device)
                event.record(self._device.current_stream())
        elif self._eager is not None:
            self._eager._record(name)  # noqa: SLF001 - of this file

    @contextlib.contextmanager
    def around_capture(self, key: GraphKey) -> Iterator[None]:
        """Collect the names that a capture records; for ``GraphedCallable(around_capture=...)``."""
        if self._captured is not None:
            raise LayerEventError(
                f"capturing {key} with layer events: another capture of theirs is under way; "
                "captures do not nest"
            )
        self.release(key)
        captured: dict[str, ExternalEvent] = {}
        replays = _Replays(key)
        self._captured, self._replays = captured, replays
        try:
            yield
        except BaseException:
            self._free.extend(captured.values())
            raise
        finally:
            self._captured = self._replays = None
            replays.end_capture()
        places = _Places(self, key, self._device, self._stream, self._pool, captured, replays)
        with self._lock:
            self._places[key] = places

    def around_replay(self, key: GraphKey) -> AbstractContextManager[object]:
        """Return what begins and ends a step; for ``GraphedCallable(around_replay=...)``.

        On a `GuardingDevice` a replay outside of it, or a second one, raises `ReplayRefusedError`.

        Raises:
            LayerEventError: the graph was captured without these events, or its last replay failed.
                At the end: the graph was not replayed.
        """
        places = self._latest
        # Hashing a key takes as long as a replay.
        if places is None or places.key is not key:
            places = self._latest = self._places.get(key)
        if places is None or places.has_failed:
            what = "was captured without them" if places is None else "failed at its last replay"
            raise LayerEventError(
                f"replaying {key} with layer events: the graph {what}, so its events cannot be "
                "waited for; release the graph and capture it again, with around_capture= of these "
                "events"
            )
        return places

    @contextlib.contextmanager
    def eager_step(self) -> Iterator[LayerStep]:
        """Record ordinary events in a block that runs eagerly, and make it the current step."""
        if self._eager is not None or self._captured is not None:
            raise LayerEventError(
                "beginning an eager step of layer events: a step or a capture is under way"
            )
        self._num_steps += 1
        step = self._eager = self._current = LayerStep(self._device, self._num_steps, None)
        try:
            yield step
        finally:
            self._eager = None

    def _replayed(self, places: _Places) -> int:
        """Note that a graph was replayed, and return the number of the step."""
        self._current = places
        self._num_steps += 1
        return self._num_steps

    def release(self, key: GraphKey) -> None:
        """Release the events of a key, after its graph was released; waits for the device.

        Args:
            key: of a captured graph; an unknown one is no error.
        """
        with self._lock:
            places, self._latest = self._places.pop(key, None), None
        if places is not None:
            self._free.extend(places.release())


class LayerStep:
    """The named places of one step. Made by `LayerEvents`.

    Attributes:
        number: of the step, counted from 1 over all keys.
    """

    def __init__(self, device: GraphDevice, number: int, places: _Places | None) -> None:
        self.number = number
        self._device = device
        self._places = places
        self._events: dict[str, Event] = {}

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


class _Places:
    """What one captured graph records, and how its events are waited for."""

    def __init__(
        self,
        owner: LayerEvents,
        key: GraphKey,
        device: GraphDevice,
        stream: Stream,
        pool: object,
        events: dict[str, ExternalEvent],
        replays: _Replays,
    ) -> None:
        self._owner = owner
        self._replays = replays
        self.key = key
        self._device = device
        self._stream = stream
        self._pool = pool
        self._external = events
        self._lock = threading.Lock()
        self._asked: dict[str, Event] = {}
        self._late: dict[str, Event] = {}
        self._latest: Event | None = None  # after the relay that was replayed last
        self._fresh: set[str] = set()  # whose words were 0 before the replay
        self._next_fresh = set(events)
        self._replaying: Stream | None = None
        self.relays: dict[str, DeviceGraph] = {}
        self._step: LayerStep | None = None
        self._number = 0
        self.has_failed = False
        device.synchronize()
        for name, event in events.items():
            self.relays[name] = self._waiting_graph(event)
        # A breakable capture has replayed its segments, a whole one has not: set each word, and let
        # the relay clear it.
        for event in events.values():
            event.record(stream)
        self._replay(*self.relays.values())
        device.synchronize()

    def __enter__(self) -> None:
        """Begin a step: clear the words of names asked for too late, before the new replay."""
        stream = self._device.current_stream()
        self._replays.begin()
        with self._lock:
            self.has_failed = True
            self._step, self._replaying = None, stream
            if not (self._next_fresh or self._fresh or self._late):
                return  # nobody asked for anything of this step or the one before it
            self._fresh, self._next_fresh = self._next_fresh, set()
            if self._late:
                # Only when the replay has set the word again.
                for event in self._late.values():
                    self._stream.wait_event(event)
                self._replay(*(self.relays[name] for name in self._late))
                self._latest = self._device.create_event()
                self._latest.record(self._stream)
            if not self._fresh:
                return
            self._asked, self._late = {}, {}
            latest = self._latest
        if latest is not None:
            stream.wait_event(latest)

    def __exit__(self, exception_type: object, *_: object) -> None:
        """End the step: its graph is replayed."""
        self._replays.end(has_failed=exception_type is not None)
        if exception_type is None:
            self._number = self._owner._replayed(self)  # noqa: SLF001 - of this file
            self.has_failed = False

    def current_step(self) -> LayerStep:
        """Return the step of the latest replay; if the next one has begun, a step that is over."""
        with self._lock:
            if self._step is None or self.has_failed:
                step = LayerStep(self._device, self._number, self)
                if self.has_failed:
                    return step
                self._step = step
            return self._step

    def event_of(self, name: str, step: LayerStep) -> Event:
        """Return an ordinary event that is reached where the step reaches a place."""
        with self._lock:
            if self._step is not step:
                raise LayerEventError(
                    f"waiting for {name!r} of step {step.number}: the graph was replayed again or "
                    "released, and its memory belongs to a later step; wait for the names of a "
                    "step before its graph is replayed again"
                )
            event = self._asked.get(name) or self._late.get(name)
            if event is not None:
                return event
            relay = self.relays.get(name)
            if relay is None:
                raise _unknown(name, tuple(self.relays))
            event = self._device.create_event()
            if name in self._fresh:
                self._replay(relay)
                event.record(self._stream)
                self._asked[name] = self._latest = event
            else:
                event.record(self._replaying)
                self._late[name] = event
            # Only now: a relay that failed has not cleared its word.
            self._next_fresh.add(name)
            return event

    def release(self) -> list[ExternalEvent]:
        """Release the relays and return the events."""
        with self._lock:
            self._step, self.has_failed = None, True
        self._replays.is_released = True
        self._device.synchronize()
        for graph in self.relays.values():
            graph.reset()
        self.relays = {}
        return list(self._external.values())

    def _replay(self, *graphs: DeviceGraph) -> None:
        with self._device.use_stream(self._stream):
            for graph in graphs:
                graph.replay()

    def _waiting_graph(self, event: ExternalEvent) -> DeviceGraph:
        graph = self._device.create_graph()
        with self._device.capture(graph, pool=self._pool, stream=self._stream):
            event.wait(self._stream)
            event.reset(self._stream)
        return graph


class _Replays:
    """The replays in a step of one captured graph, or of its segments: as many as it has."""

    def __init__(self, key: GraphKey) -> None:
        self._key = key
        self._is_guarded = False
        # A breakable capture replays each segment once.
        self._is_open = True
        self._count = 0
        self._expected = 0
        self.is_released = False

    def guard(self, device: GraphDevice) -> None:
        """Be asked before each replay of the graph that is captured now, if the device can."""
        if isinstance(device, GuardingDevice):
            asked = device.guard_replays(self._refusal, waits_for_updates=False)
            self._is_guarded = self._is_guarded or asked

    def end_capture(self) -> None:
        self._expected = max(self._count, 1) if self._is_guarded else 0
        self._is_open = False

    def begin(self) -> None:
        self._is_open, self._count = True, 0

    def end(self, *, has_failed: bool) -> None:
        self._is_open = False
        if not has_failed and self._count < self._expected:
            raise LayerEventError(
                f"ending a step of {self._key} with layer events: its graph was not replayed, and "
                "whoever waits for its events would wait for ever; replay it inside around_replay. "
                "Release the graph and capture it again"
            )

    def _refusal(self, _: object) -> str | None:
        if self.is_released:
            return None
        if not self._is_open:
            return (
                f"replaying {self._key} with layer events: it is replayed outside of a step, and "
                "nobody would clear its events before those of the next step; replay it inside "
                "around_replay"
            )
        self._count += 1
        if self._count <= self._expected or not self._expected:
            return None
        return (
            f"replaying {self._key} with layer events: it is replayed a second time in one step, "
            "and its events would be recorded twice; begin a step for each replay"
        )


def _refuse_twice(name: str, recorded: Collection[str], what: str) -> None:
    if name in recorded:
        raise LayerEventError(
            f"recording the layer event {name!r}: the name was recorded before in this {what}; "
            "give each place a name of its own"
        )


def _unknown(name: str, names: tuple[str, ...]) -> LayerEventError:
    known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return LayerEventError(
        f"waiting for the layer event {name!r}: the step has recorded {known or 'no event'}; call "
        "record() with this name in the function that is captured"
    )
