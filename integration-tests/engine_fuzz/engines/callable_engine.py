"""An engine of graphed callables and a lane: as engines are that adopt the two packages alone."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from engine_fuzz.engines.engine_attention import EngineAttention
from engine_fuzz.engines.fuzzed_model import FuzzedModel
from engine_fuzz.engines.reference import host_tensors
from engine_fuzz.engines.sequences import (
    DECODE_SIZES,
    MAX_SEQUENCES,
    NUM_COLUMNS,
    PREFILL_SIZE,
    padding_batch,
)
from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    largest_first,
    weights_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from engine_fuzz.engines.sequences import Batch
    from engine_fuzz.episode import Shape
    from npu_graph_runtime import NpuDevice

_DECODE_RUN_MODES = {
    "full": RunMode.FULL,
    "full_decode_and_piecewise": RunMode.FULL,
    "piecewise": RunMode.PIECEWISE,
    "breakable": RunMode.BREAKABLE,
}


class CallableEngine:
    """Static inputs, one graph per key, and one update plan per graph if steps are captured whole.

    Args:
        device: the device.
        shape: how the engine is built.
        seed: seed of the weights.

    Attributes:
        device: as passed.
        model: the served model.
        lane: the update lane.
        attention: attention of the model.
        context: graph context of its callables.
        factor: a plain value passed to the model.
        callables: the callables that capture and replay.
    """

    def __init__(self, device: NpuDevice, shape: Shape, *, seed: int) -> None:
        self.device = device
        self.shape = shape
        self.factor: Any = 1
        self.model = FuzzedModel(device.torch_device, seed=seed, quirk=shape.quirk)
        self.context = GraphContext()
        self.recorder = self.make_recorder()
        self.lane = self.make_lane()
        self.plans: dict[GraphKey, UpdatePlan] = {}
        self._pool: object = None
        rows = max(PREFILL_SIZE, MAX_SEQUENCES)
        make = partial(torch.zeros, device=device.torch_device)
        self.inputs = (
            make(rows, dtype=torch.int64),
            make(rows, dtype=torch.int64),
            make(MAX_SEQUENCES, NUM_COLUMNS, dtype=torch.int32),
        )
        self.callables: list[GraphedCallable] = []
        self.attention = EngineAttention(self.model, shape, self.context, self.recorder)
        self.model.attention = self.attention
        if shape.mode in {"piecewise", "full_decode_and_piecewise"}:
            for name in ("before_attention", "between_attention", "after_attention"):
                piece = self._graphed(getattr(self.model, name), name, RunMode.PIECEWISE)
                setattr(self.model, name, piece)
        self._step: Callable[..., Tensor] = self.model
        if shape.mode != "piecewise":
            self._step = self._graphed(self._wrapped(), "step", self._run_mode(is_decode=True))
        self.keys = {
            (is_decode, size): GraphKey(
                num_tokens=size,
                num_sequences=size if is_decode else 2,
                extra=("decode" if is_decode else "prefill",),
            )
            for is_decode, size in self._captured_sizes()
        }

    def make_recorder(self) -> Recorder:
        """Return the recorder of attention."""
        return Recorder(self.device)

    def make_lane(self) -> UpdateLane:
        """Return the update lane."""
        updater: Any = self.shape.updater
        return UpdateLane(self.device, updater=updater, worker=self.shape.worker)

    def callable_options(self) -> dict[str, Any]:
        """Return further options of all graphed callables."""
        return {
            "weak_outputs": self.shape.weak_outputs,
            "warmup_runs": self.shape.warmup_runs,
            "address_check": AddressCheck(self.shape.address_check),
        }

    def capture(self) -> None:
        """Capture all graphs."""
        with CaptureSession(self.device, self.context, self._pool) as session:
            self._pool = session.pool
            self.capture_in(session)

    def capture_in(self, session: CaptureSession) -> None:
        """Capture all graphs inside an open session, the largest first."""
        assert self.context.capture_session is session
        for key in largest_first(self.keys.values()):
            is_decode = key.extra == ("decode",)
            self._capture_one(padding_batch(key.num_tokens, is_decode=is_decode), key)

    def run(
        self,
        batch: Batch,
        *,
        key: GraphKey | None = None,
        parameters: StepParameters | None = None,
        plan_of: GraphKey | None = None,
    ) -> Tensor:
        """Run a step, and return the hidden states of its own rows, in the graph's memory.

        Args:
            batch: the step.
            key: in place of the key of the batch.
            parameters: in place of those of the batch.
            plan_of: the key whose update plan is used, in place of that of the batch.
        """
        self.device.bind_thread()
        inputs = self.load(batch)
        key = self.keys.get((batch.is_decode, batch.size)) if key is None else key
        mode = RunMode.EAGER if key is None else self._run_mode(is_decode=batch.is_decode)
        replay = partial(self.call, mode, key, inputs)
        if mode is RunMode.FULL:
            assert key is not None
            given = self.parameters(batch, key) if parameters is None else parameters
            plan = self.plans[key if plan_of is None else plan_of]
            hidden: Tensor = self.lane.run(plan, given, replay)
        else:
            self._show_lengths(batch)
            hidden = replay()
        return hidden[: batch.num_rows]

    def call(
        self, mode: RunMode, key: GraphKey | None, inputs: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Run, replay or capture a step, as the run mode says; return all of its rows."""
        with self.context.run(mode, key):
            hidden: Tensor = self._step(*inputs, self.factor)
        return hidden

    def load(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Copy a batch into the static inputs, and return its part of them."""
        tokens, slots, table = self.inputs
        size, sequences = batch.size, len(batch.table)
        # Copies of other memory than pinned one are not in order with what reads the inputs.
        for static, values in zip(self.inputs, host_tensors(batch), strict=True):
            static[: len(values)].copy_(values, non_blocking=True)
        return tokens[:size], slots[:size], table[:sequences]

    def parameters(self, batch: Batch, key: GraphKey) -> StepParameters:
        """Return the lengths of a step."""
        lengths = {
            "actual_seq_lengths": list(batch.queries),
            "actual_seq_lengths_kv": list(batch.keys),
        }
        return StepParameters(key=key, groups={"default": lengths})

    def move_inputs(self) -> None:
        """Put the static inputs elsewhere."""
        first, second, third = self.inputs
        self.inputs = (first.clone(), second.clone(), third.clone())

    def drain(self) -> None:
        """Wait for the lane's thread to end, and raise its failure if there was one."""
        self.lane.drain()

    def check_weights(self) -> None:
        """Compare weights with the captures, as after an update of them."""
        for graphed in self.callables:
            graphed.check_weights()

    def release(self) -> None:
        """Give all graphs up, with their plans and records."""
        for graphed in self.callables:
            graphed.release_all()
        self.plans.clear()
        for key in self.recorder.keys:
            self.recorder.release(key)

    def mend(self) -> None:
        """Give the quirk up, as a user does whose capture was refused for it."""
        self.model.mend()
        self.attention.records = self.shape.records

    def close(self) -> None:
        """Give everything up."""
        self.release()
        self.lane.close()

    def _run_mode(self, *, is_decode: bool) -> RunMode:
        if is_decode:
            return _DECODE_RUN_MODES[self.shape.mode]
        if self.shape.mode == "full_decode_and_piecewise":
            return RunMode.PIECEWISE
        return RunMode.EAGER if self.shape.mode == "full" else _DECODE_RUN_MODES[self.shape.mode]

    def _captured_sizes(self) -> Iterator[tuple[bool, int]]:
        yield from ((True, size) for size in DECODE_SIZES)
        if self.shape.mode != "full":
            yield False, PREFILL_SIZE

    def _wrapped(self) -> Callable[..., Tensor]:
        model = self.model
        if self.shape.wrapped == "method":
            return model.forward
        if self.shape.wrapped == "lambda":
            return lambda *inputs: model(*inputs)  # noqa: PLW0108 - one form of several
        return partial(model) if self.shape.wrapped == "partial" else model

    def _graphed(
        self, function: Callable[..., Any], name: str, run_mode: RunMode
    ) -> GraphedCallable:
        options = self.callable_options()
        if run_mode is RunMode.PIECEWISE:
            # A piece is a method; its weights are those of the model.
            options = {"weights": weights_of(self.model), **options}
        graphed = GraphedCallable(
            function,
            device=self.device,
            context=self.context,
            run_mode=run_mode,
            name=name,
            **options,
        )
        self.callables.append(graphed)
        return graphed

    def _capture_one(self, batch: Batch, key: GraphKey) -> None:
        self._show_lengths(batch)
        inputs = self.load(batch)
        mode = self._run_mode(is_decode=batch.is_decode)
        is_whole = mode is RunMode.FULL
        with self.recorder.recording(key) if is_whole else contextlib.nullcontext():
            self.call(mode, key, inputs)
        if is_whole:
            self.plans[key] = UpdatePlan.compile(self.recorder, key)

    def _show_lengths(self, batch: Batch) -> None:
        self.attention.queries, self.attention.keys = batch.queries, batch.keys
