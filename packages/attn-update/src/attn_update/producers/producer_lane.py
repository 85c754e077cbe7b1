"""The producer lane: the stream on which a device's producers run, step by step.

Names. C is the stream that replays a graph, P the lane's stream. Step i of a key puts p(i, s), the
producers of stage s, on P, and R(i), the replay, on C. The host never waits.

Note [beside the graph]. For each stage s whose buffers a layer reads, the captured graph has a wait
for the external event x(s), which leaves it unset, in front of the first such layer. Behind p(i, s)
P sets x(s). All of P is queued before R(i).

1. No layer reads what an earlier step made: x(s) is unset when R(i) begins, so the layer waits for
   the record that follows p(i, s).
2. Nothing is rewritten that a replay reads. Behind each replay an event d is recorded on C, and P
   waits, before p(i, 0), for the latest d of every key that uses any of the same memory: that is
   the fence. So the waits of R(i - 1), which unset x(s), are over too when p(i, s) sets it.
3. What the caller put on C before the step, such as copies of inputs, is there: P waits for C.
4. No deadlock: P waits only for replays that were queued before, and R(i) for work on P that is
   queued before it.

Note [inside the graph]. The producers are captured on a stream that forks from C where the
recording begins; a layer waits for the stages that it reads, and the stream joins C at the latest
where the recording ends. R(i) runs them by itself, and reads the inputs anew. The fence is a wait
of C in `begin`, so inputs that graphs of several streams share are written behind it.

Note [unsettled]. A step that was not finished may have set x(s) for a replay that never came. It is
known by assignments that come before all launches, so an exception of a signal handler needs no
care. The next step of the key then orders R(i) behind all of P by an ordinary event: x(s) may be
set already, and R(i) leaves it unset as always. Whether that step's replay was queued is not known
either, so the fence waits for all that its stream had.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from attn_update.errors import LaneError, ProducerError, RecordingError, UnknownNameError
from attn_update.producers.key_producers import KeyProducers, ProducedMemory
from attn_update.recording.tensor_memory import MemorySpan

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    import torch

    from attn_update.producers.producer import Producer, ProducerStep
    from attn_update.recording.recorder import Recorder
    from attn_update.task_device import Stream, TaskDevice

_Result = TypeVar("_Result")


class ProducerLane:
    """Runs the producers of captured graphs of one device, in order and without a host wait.

    Make one for each device and share it between models; it is used by one thread at a time. It
    forgets a key when its recorder does (`Recorder.release`).

    Args:
        device: The device of the graphs.
    """

    def __init__(self, device: TaskDevice) -> None:
        self.device = device
        self.stream: Stream = device.create_stream()
        self._keys: dict[Hashable, KeyProducers] = {}
        self._memories: list[ProducedMemory] = []
        self._recorded: KeyProducers | None = None

    @contextmanager
    def recording(
        self,
        recorder: Recorder,
        producers: Sequence[Producer],
        *,
        captured: bool = False,
        values: Any = None,
        key: Hashable = None,
    ) -> Iterator[None]:
        """Let the layers that are captured inside the context wait for the producers they read.

        Enter it inside of `Recorder.recording` and of the capture, before the first layer. What a
        layer reads is seen from the tensors that it is given.

        Args:
            recorder: Records the layers.
            producers: Of the graph, in any order; see `Producer.stage`.
            captured: Whether they are captured into the graph, where each replay runs them, or
                launched beside it in every step.
            values: For `Producer.launch`, which is called now if `captured`.
            key: Of the steps; default that of the recording. Graphs of two recorders, such as
                those of a target and a draft model, may have the same.

        Raises:
            RecordingError: No capture or no recording is under way; the producers do not fit each
                other; a layer that was captured before reads a buffer; or nothing reads one.
            ProducerError: A producer failed in the capture, which must be abandoned.
        """
        recorded = recorder.recorded_key
        if recorded is None or not self.device.is_capturing():
            raise RecordingError(
                "recording producers: expected a capture inside of Recorder.recording, found "
                f"{'no recording' if recorded is None else 'no capture'}; enter "
                "ProducerLane.recording inside of both"
            )
        key = recorded if key is None else key
        if key in self._keys:
            raise RecordingError(
                f"recording the producers of key {key!r}: they are recorded already, and two "
                f"graphs would use the events of one; release it first, or give `key=` where two "
                f"recorders have the same"
            )
        current = self.device.current_stream()
        state = KeyProducers(
            key, self.device, producers, captured=captured, on_release=self._forget
        )
        for producer in producers:
            for layer_name in recorder.layers_reading(producer.buffers):
                raise RecordingError(
                    f"recording the producers of key {key!r}: {producer.name!r} would run after "
                    f"the layer {layer_name!r}, which reads its buffer and was captured before; "
                    f"enter ProducerLane.recording in front of all layers"
                )
        with recorder.with_producers(state) as is_guarded:
            state.is_guarded = is_guarded
            self._recorded = state
            beside = self._stream_beside(current) if captured else None
            try:
                if beside is not None:
                    self._capture(state, current, beside, values)
                yield
            finally:
                self._recorded = None
                if beside is not None and state.ready:
                    current.wait_stream(beside)
        state.check_readers()
        buffers = [self._memory(b, p.name, "buffer") for p in producers for b in p.buffers]
        inputs = [self._memory(i, p.name, "input") for p in producers for i in p.inputs]
        state.buffers = tuple(buffers)
        state.memories = tuple(dict.fromkeys(buffers + inputs))
        _note_written(state.buffers)
        self._keys[key] = state

    def wait_for(self, *tensors: torch.Tensor, name: str = "an operator of the model") -> None:
        """Let the current stream wait for what makes these tensors, while it is captured.

        Only for operators that read a buffer and do not go through `Recorder.attention`.

        Args:
            tensors: Buffers of producers.
            name: Of what reads them, in errors.

        Raises:
            RecordingError: No producers are recorded now, or none makes one of them.
        """
        if self._recorded is None:
            raise RecordingError(
                f"waiting for the producers that {name} reads: no producers are recorded now; "
                f"call it inside of ProducerLane.recording"
            )
        given = {f"tensor {index}": tensor for index, tensor in enumerate(tensors)}
        self._recorded.before_layer(name, given, frozenset(given))

    def check(self, step: ProducerStep) -> None:
        """Check a step; nothing is launched. `run` and `begin` do it too.

        Raises:
            UnknownNameError: The key has no producers, or was released.
            StepParameterError: The producers are not those of the capture, or a bound is too small.
            DeadTensorError: The memory of a buffer or an input was freed or exchanged.
        """
        self._state(step.key).check(step)

    def run(self, step: ProducerStep, replay: Callable[[], _Result]) -> _Result:
        """Run one step: check, produce and replay. Returns as soon as all is queued.

        With an update lane, this is the replay of its step:
        ``lane.run(plan, parameters, lambda: producers.run(step, graph.replay))``.

        Args:
            step: Of this step.
            replay: Queues the replay on the current stream.

        Returns:
            What `replay` returns.

        Raises:
            AttnUpdateError: From `check`; nothing was launched.
            LaneError: As for `begin`; or the graph was not replayed, or twice.
            ProducerError: A producer failed; nothing was replayed.
        """
        state = self._state(step.key)
        try:
            self.begin(step)
            result = replay()
        except BaseException as error:
            refusal = state.refusal
            if refusal is not None and isinstance(error, Exception):
                raise LaneError(refusal) from error
            raise
        else:
            self.finish(step.key)
            return result
        finally:
            # An interrupt may come anywhere.
            state.is_open = False

    def begin(self, step: ProducerStep) -> None:
        """Begin a step whose graph you replay, on the stream that is current now.

        Call `finish` after the replay, or `abandon` where it failed.

        Args:
            step: Of this step.

        Raises:
            AttnUpdateError: From `check`; nothing was launched.
            LaneError: A buffer would be rewritten early, because a step that reads it was begun and
                not finished; or something else than its producer wrote it. Nothing was launched.
            ProducerError: A producer failed; nothing is to be replayed.
        """
        state = self._state(step.key)
        state.refusal = None
        self._check_open(state)
        state.check(step)
        state.check_untouched()
        current = self.device.current_stream()
        if current == self.stream:
            self.stream = self._stream_beside(current)
            self.stream.wait_stream(current)
        is_settled = not state.unsettled
        # In front of all launches: Note [unsettled].
        state.unsettled, state.stream = True, current
        _fence(state.memories, current if state.captured else self.stream)
        for memory in state.memories:
            memory.pending[state.key] = current
        if not state.captured:
            self.stream.wait_stream(current)
            try:
                self._launch(state, step.values)
            except BaseException:
                # An interrupt at the end of `use_stream`, which is Python's.
                if self.device.current_stream() == self.stream:
                    self.device.use_stream(current).__enter__()
                raise
            if not is_settled:
                current.wait_event(self.stream.record_event())
        state.awaits_replay = state.is_guarded
        state.is_open = True

    def finish(self, key: Hashable) -> None:
        """End the step that was begun, after its replay was queued.

        Raises:
            LaneError: No step of the key was begun; or the graph was not replayed in it.
        """
        state = self._require_open(key, "finishing")
        state.is_open = False
        if state.awaits_replay:
            raise LaneError(
                f"finishing a step of key {key!r}: the graph that was captured under it was not "
                f"replayed; replay that graph between begin and finish"
            )
        assert state.stream is not None  # noqa: S101
        replayed = state.stream.record_event()
        for memory in state.memories:
            memory.replayed[key] = replayed
            memory.pending.pop(key, None)
        state.unsettled = False

    def abandon(self, key: Hashable) -> None:
        """Give up the step that was begun, whether its graph was replayed or not.

        Raises:
            LaneError: No step of the key was begun.
        """
        self._require_open(key, "abandoning").is_open = False

    def run_now(self, producers: Iterable[Producer], values: Any = None) -> None:
        """Run producers at once on the current stream, for a step without a graph.

        Args:
            producers: In any order; bounds of graphs do not concern them.
            values: For `Producer.launch`.

        Raises:
            LaneError: A step that reads a buffer was begun and not finished.
            ProducerError: A producer failed.
        """
        ordered = sorted(producers, key=lambda producer: producer.stage)
        spans = [MemorySpan.of(each) for p in ordered for each in (*p.buffers, *p.inputs)]
        memories = [memory for memory in self._memories if any(map(memory.span.overlaps, spans))]
        self._check_rewriting(memories, "running producers at once")
        current = self.device.current_stream()
        _fence(memories, current)
        for memory in memories:
            # What reads it comes behind on the same stream.
            memory.pending[_AtOnce] = current
        try:
            for producer in ordered:
                _launch(producer, values, "running producers at once")
        finally:
            _note_written(memories)

    def _forget(self, released: KeyProducers) -> None:
        key = released.key
        if self._keys.get(key) is not released:
            return
        del self._keys[key]
        used = {id(memory) for state in self._keys.values() for memory in state.memories}
        self._memories = [memory for memory in self._memories if id(memory) in used]
        for memory in self._memories:
            memory.near = [near for near in memory.near if id(near) in used]
            memory.replayed.pop(key, None)
            memory.pending.pop(key, None)

    def _state(self, key: Hashable) -> KeyProducers:
        state = self._keys.get(key)
        if state is None:
            raise UnknownNameError(
                f"looking up the producers of key {key!r}: never recorded, or released; recorded "
                f"keys: {', '.join(map(repr, self._keys)) or 'none'}"
            )
        return state

    def _memory(self, tensor: torch.Tensor, producer: str, role: str) -> ProducedMemory:
        span = MemorySpan.of(tensor)
        for known in self._memories:
            if known.span == span:
                return known
        name = f"the {role} of the producer {producer!r}"
        made = ProducedMemory(tensor=tensor, name=name, span=span)
        self._memories.append(made)
        for known in self._memories:
            if known.span.overlaps(span):
                made.near.append(known)
                if known is not made:
                    known.near.append(made)
        return made

    def _stream_beside(self, current: Stream) -> Stream:
        stream = self.device.create_stream()
        while stream == current:  # they come from a small pool
            stream = self.device.create_stream()
        return stream

    def _check_open(self, state: KeyProducers) -> None:
        if state.is_open:
            state.is_open = False
            raise LaneError(
                f"running a step of key {state.key!r}: the step before it was begun and never "
                f"finished, and its buffers would be rewritten early, while a replay may read "
                f"them. Throw its results away; the next step works. Call finish or abandon after "
                f"each begin"
            )
        self._check_rewriting(state.memories, f"running a step of key {state.key!r}")

    def _check_rewriting(self, memories: Sequence[ProducedMemory], what: str) -> None:
        for other in self._keys.values():
            if not other.is_open:
                continue
            for memory in memories:
                if any(near in other.memories for near in memory.near):
                    raise LaneError(
                        f"{what}: {memory.name} would be rewritten early: the step of key "
                        f"{other.key!r} uses it, was begun and is not finished; finish it first, "
                        f"or give each key a buffer of its own"
                    )

    def _require_open(self, key: Hashable, what: str) -> KeyProducers:
        state = self._state(key)
        if not state.is_open:
            raise LaneError(
                f"{what} a step of key {key!r}: none was begun, or it was given up; call begin "
                f"first"
            )
        return state

    def _capture(
        self, state: KeyProducers, current: Stream, beside: Stream, values: object
    ) -> None:
        beside.wait_event(current.record_event())
        with self.device.use_stream(beside):
            for stage, producers in state.stages.items():
                for producer in producers:
                    _launch(producer, values, f"capturing the producers of key {state.key!r}")
                state.ready[stage] = beside.record_event()

    def _launch(self, state: KeyProducers, values: object) -> None:
        try:
            with self.device.use_stream(self.stream):
                for stage, producers in state.stages.items():
                    for producer in producers:
                        _launch(producer, values, f"running a step of key {state.key!r}")
                    event = state.events.get(stage)
                    if event is not None:
                        event.record(self.stream)
        finally:
            _note_written(state.buffers)


class _AtOnce:
    """Stands for what is run without a graph, among graph keys."""


def _note_written(memories: Iterable[ProducedMemory]) -> None:
    for memory in memories:
        # Views of one storage count together.
        for near in memory.near:
            near.note_written()


def _fence(memories: Sequence[ProducedMemory], stream: Stream) -> None:
    """Let a stream wait for all replays that may use any of the memories."""
    near = [each for memory in memories for each in memory.near]
    for event in {id(event): event for each in near for event in each.replayed.values()}.values():
        stream.wait_event(event)
    for other in {id(other): other for each in near for other in each.pending.values()}.values():
        if other != stream:
            stream.wait_stream(other)


def _launch(producer: Producer, values: object, what: str) -> None:
    try:
        producer.launch(values)
    except Exception as error:
        raise ProducerError(
            f"{what}: the producer {producer.name!r} failed ({error}); nothing was replayed, and "
            f"the next step works",
            producer=producer.name,
        ) from error
