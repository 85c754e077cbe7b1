"""The producers of one graph key: what its graph waits for, and how far its step is."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from attn_update.errors import (
    DeadTensorError,
    LaneError,
    RecordingError,
    StepParameterError,
    nearest,
)
from attn_update.recording.tensor_memory import MemorySpan, tensors_in
from attn_update.torch_internals import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    import torch

    from attn_update.producers.producer import Producer, ProducerStep
    from attn_update.task_device import Event, ExternalEvent, Stream, TaskDevice


@dataclass(kw_only=True, eq=False)
class ProducedMemory:
    """One buffer or input of a lane's producers; graphs of several keys may share it.

    Attributes:
        tensor: The memory.
        name: In errors.
        span: Where it was when it was first seen.
        replayed: By graph key the event behind the latest replay that uses it.
        pending: By graph key the stream of a replay that is not known to be queued: one under way,
            or of a step that was not finished.
        storage_bytes: How large its storage was.
        near: All memories of the lane that share a byte with it, itself too.
        version: How often torch saw it written, when its producer last wrote it. None where others
            write the same storage too, or where torch does not count.
    """

    tensor: torch.Tensor
    name: str
    span: MemorySpan
    replayed: dict[Hashable, Event] = field(default_factory=dict)
    pending: dict[Hashable, Stream] = field(default_factory=dict)
    near: list[ProducedMemory] = field(default_factory=list)
    version: int | None = None
    storage_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.storage_bytes = self.tensor.untyped_storage().nbytes()

    @property
    def is_moved(self) -> bool:
        """Whether its memory was freed, or exchanged for other memory."""
        tensor = self.tensor
        if tensor.data_ptr() != self.span.start:
            return True
        return tensor.untyped_storage().nbytes() != self.storage_bytes

    @property
    def is_written_elsewhere(self) -> bool:
        """Whether something else than its producer has written it."""
        return self.version is not None and self.version != version_of(self.tensor)

    def note_written(self) -> None:
        """Note that its producer wrote it."""
        # A view of a larger buffer counts what is written beside it, too.
        is_alone = self.span.end - self.span.start == self.storage_bytes
        self.version = version_of(self.tensor) if is_alone else None


class KeyProducers:
    """The producers of one graph, in the order of their stages. Fits `LayerProducers`.

    `on_release` is called when the recorder forgets the key.

    Attributes:
        key: Of the graph.
        captured: Whether they are captured into the graph.
        stages: The producers of each stage, by its number.
        events: Beside the graph: the external event that the graph waits for, by stage, for each
            stage that a layer reads.
        ready: Inside the graph: the event behind each stage.
        memories: What they read and write.
        buffers: What they write.
        stream: The stream that replays in the step under way, or in the latest one.
        is_open: Whether a step is under way.
        awaits_replay: Whether the graph was not replayed in that step yet.
        is_guarded: Whether the graph asks before each replay.
        unsettled: Whether events may be left set, because a step was not finished.
        released: Whether the recorder forgot the key.
        refusal: Why a replay was refused in the step under way.

    Raises:
        RecordingError: Two have one name or write the same memory, one reads what a later stage
            or its own makes, or a buffer is not contiguous.
    """

    def __init__(
        self,
        key: Hashable,
        device: TaskDevice,
        producers: Sequence[Producer],
        *,
        captured: bool,
        on_release: Callable[[KeyProducers], None],
    ) -> None:
        self.key = key
        self.captured = captured
        ordered = sorted(producers, key=lambda producer: producer.stage)
        grouped = groupby(ordered, key=lambda producer: producer.stage)
        self.stages = {stage: tuple(members) for stage, members in grouped}
        self.events: dict[int, ExternalEvent] = {}
        self.ready: dict[int, Event] = {}
        self.memories: tuple[ProducedMemory, ...] = ()
        self.buffers: tuple[ProducedMemory, ...] = ()
        self.stream: Stream | None = None
        self.is_open = False
        self.awaits_replay = False
        self.is_guarded = False
        self.unsettled = False
        self.released = False
        self.refusal: str | None = None
        self._device = device
        self._on_release = on_release
        self._waiting: dict[int, list[Stream]] = {}
        self._read: set[str] = set()
        self._producers = {producer.name: producer for producer in ordered}
        self._spans = [
            (producer, MemorySpan.of(buffer)) for producer in ordered for buffer in producer.buffers
        ]
        self._check_producers(ordered)

    def before_layer(
        self, layer_name: str, arguments: Mapping[str, object], metadata: frozenset[str]
    ) -> None:
        """Let the current stream wait for the stages of the buffers that a layer reads.

        Raises:
            RecordingError: An argument in `metadata` is no buffer of a producer.
        """
        for name, value in arguments.items():
            makers = self.makers_of(tensors_in(value))
            if name in metadata and not makers:
                raise RecordingError(
                    f"capturing layer {layer_name!r} under key {self.key!r}: expected {name!r} in "
                    f"a buffer of a producer, which makes it in every step, found other memory; "
                    f"known producers: {', '.join(map(repr, self._producers)) or 'none'}"
                )
            self._read.update(producer.name for producer in makers)
            for stage in sorted({producer.stage for producer in makers}):
                self._wait_for(stage)
        for name in sorted(metadata - arguments.keys()):
            raise RecordingError(
                f"capturing layer {layer_name!r} under key {self.key!r}: expected {name!r}, which "
                f"a producer makes, found none"
            )

    def makers_of(self, tensors: Iterable[torch.Tensor]) -> list[Producer]:
        """Return the producers that write the memory of any of these tensors."""
        spans = [MemorySpan.of(tensor) for tensor in tensors]
        return [
            producer
            for producer, buffer in self._spans
            if any(span.overlaps(buffer) for span in spans)
        ]

    def check_readers(self) -> None:
        """Check that a layer, or another producer, reads what each producer makes.

        Raises:
            RecordingError: Nothing does, so nothing orders it.
        """
        inputs = [tensor for each in self._producers.values() for tensor in each.inputs]
        read = self._read | {producer.name for producer in self.makers_of(inputs)}
        for name, producer in self._producers.items():
            if name not in read:
                raise RecordingError(
                    f"recording the producers of key {self.key!r}: no layer that was captured "
                    f"reads the buffers of {name!r} (stage {producer.stage}), so nothing waits "
                    f"for it; give them to the attention of a layer, or call wait_for before the "
                    f"operator that reads them"
                )

    def check(self, step: ProducerStep) -> None:
        """Check a step; nothing is launched. See `ProducerLane.check`."""
        what = f"checking the producers of a step of key {self.key!r}"
        given, captured = set(step.needs), set(self._producers)
        for name in sorted(given - captured):
            raise StepParameterError(
                f"{what}: the graph was captured without the producer {name!r}; "
                f"{nearest(name, captured)}. A key has the stages of its capture: capture this "
                f"set under a key of its own"
            )
        for name in sorted(captured - given):
            raise StepParameterError(
                f"{what}: the producer {name!r} of stage {self._producers[name].stage} was "
                f"captured and is not given; the graph waits for it in every replay"
            )
        for name, producer in self._producers.items():
            self._check_bounds(f"{what}: {name!r}", producer, step.needs[name])
        for memory in self.memories:
            if memory.is_moved:
                raise DeadTensorError(
                    f"{what}: the memory of {memory.name} was freed or exchanged since the "
                    f"capture, and the graph still uses the old one; keep it alive, or release "
                    f"the key and capture again"
                )

    def check_untouched(self) -> None:
        """Check that only producers wrote the buffers.

        Raises:
            LaneError: Something else did, perhaps while a replay was reading.
        """
        for memory in self.buffers:
            if memory.is_written_elsewhere:
                memory.note_written()
                raise LaneError(
                    f"checking the producers of a step of key {self.key!r}: {memory.name} was "
                    f"rewritten early: something else than its producer wrote it since the latest "
                    f"step, while a replay may have been reading. Throw the results since then "
                    f"away, and write it in Producer.launch only; the next step works"
                )

    def release(self) -> None:
        """Let the lane forget the key, whose graph is replayed no more."""
        self.released = True
        self._on_release(self)

    def replay_refusal(self) -> str | None:
        """Return why the graph may not be replayed now, or None; note the replay."""
        if self.released:
            return None
        what = f"replaying the graph of key {self.key!r}"
        if not self.is_open:
            return (
                f"{what}: its producers have not run for this replay; replay it in "
                f"ProducerLane.run, or between begin and finish"
            )
        if not self.awaits_replay:
            self.refusal = (
                f"{what} a second time in one step: the events of its stages would be used twice, "
                f"and each is recorded for one replay; run a step for each replay"
            )
        elif self._device.current_stream() != self.stream:
            self.refusal = (
                f"{what}: another stream is current than when the step was begun, and its "
                f"producers are ordered with that one; replay on the same stream"
            )
        else:
            self.awaits_replay = False
            return None
        return self.refusal

    def _wait_for(self, stage: int) -> None:
        stream = self._device.current_stream()
        waiting = self._waiting.setdefault(stage, [])
        if stream in waiting:
            return
        if self.captured:
            stream.wait_event(self.ready[stage])
        elif waiting:
            # An external event serves one wait.
            stream.wait_event(waiting[0].record_event())
        else:
            self.events[stage] = event = self._device.create_external_event()
            event.wait(stream)
            event.reset(stream)
        waiting.append(stream)

    def _check_bounds(self, what: str, producer: Producer, needs: Mapping[str, int]) -> None:
        bounds = producer.bounds
        for name in sorted(needs.keys() ^ bounds.keys()):
            problem = (
                f"is not declared; {nearest(name, bounds)}"
                if name in needs
                else "is declared and was not given; give what the step needs of it"
            )
            raise StepParameterError(f"{what}: the bound {name!r} {problem}")
        for name, most in bounds.items():
            need = needs[name]
            if type(need) is not int or need < 0:
                raise StepParameterError(
                    f"{what}: expected an integer of 0 or more as need of {name!r}, found {need!r}"
                )
            if need > most:
                raise StepParameterError(
                    f"{what}: the bound {name!r} is too small: the graph was captured for "
                    f"{most} at most, and this step needs {need}; replay a graph that was "
                    f"captured for more, or run the step eagerly"
                )

    def _check_producers(self, producers: Sequence[Producer]) -> None:
        what = f"recording the producers of key {self.key!r}"
        if len(self._producers) != len(producers):
            names = [producer.name for producer in producers]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordingError(f"{what}: two are named {twice!r}; give each a name of its own")
        for position, (producer, span) in enumerate(self._spans):
            for other, taken in self._spans[:position]:
                if span.overlaps(taken):
                    raise RecordingError(
                        f"{what}: {other.name!r} and {producer.name!r} write the same memory, and "
                        f"the later one would rewrite it early; give each a buffer of its own"
                    )
        for producer in producers:
            if not all(buffer.is_contiguous() for buffer in producer.buffers):
                raise RecordingError(
                    f"{what}: a buffer of {producer.name!r} is not contiguous; expected buffers "
                    f"whose memory is their own"
                )
            for maker in self.makers_of(producer.inputs):
                if maker.stage >= producer.stage:
                    raise RecordingError(
                        f"{what}: {producer.name!r} of stage {producer.stage} reads what "
                        f"{maker.name!r} of stage {maker.stage} makes, and would run in front of "
                        f"it or beside it; give {maker.name!r} an earlier stage"
                    )
