"""Graphs of two keys in flight, and streams that read the caches of their layers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attn_update import StepParameters, UpdateLane
from attn_update.producers import ProducerLane
from mixed_schedules.sending_model import LAYERS, NAMES, SendingModel
from npu_graph_runtime import LayerEvents
from npu_graph_testing.attention.sparse_model import Buffers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from mixed_schedules.sending_model import SentStep
    from npu_graph_runtime import LayerStep, NpuDevice
    from npu_graph_runtime.device import Stream

# Key, sequences and tokens of each graph.
SHAPES = (("decode", 3, 4), ("drafts", 4, 6))
NUM_READERS = 2


@dataclass(frozen=True, kw_only=True)
class Read:
    """Rows of a layer's cache that a stream read in a step."""

    layer: int
    rows: torch.Tensor
    done: Any


@dataclass(kw_only=True)
class LaunchedStep:
    """A step whose graph was replayed.

    Attributes:
        model: Of its key.
        drawn: What it was given, and what it has to give.
        events: Its layer events.
        outputs: Copies of its outputs.
        end: Recorded behind its graph.
        reads: Of its caches, so far.
    """

    model: SendingModel
    drawn: SentStep
    events: LayerStep
    outputs: list[torch.Tensor]
    end: Any
    reads: list[Read] = field(default_factory=list)

    def is_right(self) -> bool:
        """Return whether all outputs, and all rows that were read, are those of the eager step."""
        outputs = [out.cpu() for out in self.outputs]
        return all(map(torch.equal, outputs, self.drawn.expected)) and self.is_read_right()

    def is_read_right(self) -> bool:
        """Return whether all rows that were read are those of the eager step."""
        rows = [self.drawn.rows[read.layer] for read in self.reads]
        return all(map(torch.equal, [read.rows.cpu() for read in self.reads], rows))

    def early_reads(self, begin: Any) -> int:
        """Return how many reads ended before the graph did; `begin` was recorded before all."""
        end = begin.elapsed_time(self.end)
        return sum(begin.elapsed_time(read.done) < end for read in self.reads)


class ReadingEngine:
    """Replays graphs of two keys, each on a stream of its own, and reads caches on further ones.

    Args:
        device: Runs all.
        captured: Whether the producers of each key are captured into its graph.
        shares_buffers: Whether the producers of both keys write the same buffers.
        awaits_layers: Whether a reader waits for the event of the layer that it reads.
        awaits_readers: Whether a replay waits for those who read what the last one wrote.
    """

    def __init__(
        self,
        device: NpuDevice,
        *,
        captured: tuple[bool, bool] = (False, False),
        shares_buffers: bool = False,
        awaits_layers: bool = True,
        awaits_readers: bool = True,
    ) -> None:
        self.device = device
        self.events = LayerEvents(device)
        self.readers = [device.create_stream() for _ in range(NUM_READERS)]
        self.streams = {key: device.create_stream() for key, _, _ in SHAPES}
        self._gates = [device.create_external_event() for _ in SHAPES]
        self._opener = device.create_stream()
        self._awaits_layers = awaits_layers
        self._awaits_readers = awaits_readers
        lane, producers, shared = UpdateLane(device), ProducerLane(device), Buffers.make(device)
        self.models = [
            SendingModel(
                device=device,
                lane=lane,
                producers=producers,
                buffers=shared if shares_buffers else Buffers.make(device),
                key=key,
                sequences=sequences,
                tokens=tokens,
                captured=form,
                events=self.events,
            )
            for (key, sequences, tokens), form in zip(SHAPES, captured, strict=True)
        ]
        for model in self.models:
            model.capture()
        device.synchronize()

    @contextmanager
    def held(self, streams: Sequence[Stream]) -> Iterator[None]:
        """Let two streams, or fewer, wait until the host has launched all of a block."""
        held = list(zip(streams, self._gates, strict=False))
        for stream, gate in held:
            gate.wait(stream)
            gate.reset(stream)
        try:
            yield
        finally:
            for _, gate in held:
                gate.record(self._opener)

    def launch(self, model: SendingModel, drawn: SentStep) -> LaunchedStep:
        """Replay a step, and return without waiting for it."""
        end = timed_event()

        def replay() -> None:
            model.replay_graph(drawn)
            end.record(self.device.current_stream())

        with self.device.use_stream(self._stream(model)):
            model.run_with(drawn, replay)
            outputs = [out.clone() for out in model.outputs]
        return LaunchedStep(
            model=model, drawn=drawn, events=self.events.current, outputs=outputs, end=end
        )

    @contextmanager
    def halfway(self, model: SendingModel, drawn: SentStep) -> Iterator[LaunchedStep]:
        """Replay a step whose second layer waits for its lengths until the block ends."""
        end = timed_event()
        parameters = StepParameters(key=model.key, groups={"default": dict(drawn.host)})
        with self.device.use_stream(self._stream(model)):
            model.lane.begin(model.plan, parameters)
            model.producers.begin(model.step(drawn))
            model.replay_graph(drawn)
            end.record(self.device.current_stream())
            model.producers.finish(model.key)
            outputs = [out.clone() for out in model.outputs]
            yield LaunchedStep(
                model=model, drawn=drawn, events=self.events.current, outputs=outputs, end=end
            )
            model.lane.finish()

    def fail(self, model: SendingModel, drawn: SentStep, *, is_queued: bool) -> None:
        """Begin a step that an exception ends, before or after its replay was queued."""

        def replay() -> None:
            if is_queued:
                model.replay_graph(drawn)
            raise InterruptedStepError

        with self.device.use_stream(self._stream(model)):
            try:
                model.run_with(drawn, replay)
            except InterruptedStepError:
                return
        raise AssertionError("the step was not interrupted")

    def read(self, step: LaunchedStep, layer: int, reader: Stream) -> Read:
        """Let a reader read what a layer of a step wrote."""
        if self._awaits_layers:
            step.events.wait(NAMES[layer], reader)
        with self.device.use_stream(reader):
            rows = step.model.read(layer, step.drawn.slots)
            done = timed_event()
            done.record(reader)
        step.reads.append(Read(layer=layer, rows=rows, done=done))
        return step.reads[-1]

    def read_some(self, step: LaunchedStep, random: Random) -> None:
        """Let readers read layers that are drawn."""
        for layer in range(LAYERS):
            for reader in self.readers:
                if random.random() < 1 / 2:
                    self.read(step, layer, reader)

    def _stream(self, model: SendingModel) -> Stream:
        """Return the stream of a key, behind those who read what its last step wrote."""
        stream = self.streams[model.key]
        if self._awaits_readers:
            for reader in self.readers:
                stream.wait_stream(reader)
        return stream


class InterruptedStepError(Exception):
    """Ends a step."""


def timed_event() -> Any:
    """Return an event whose time on the device can be asked for."""
    npu: Any = vars(torch)["npu"]
    return npu.Event(enable_timing=True)
