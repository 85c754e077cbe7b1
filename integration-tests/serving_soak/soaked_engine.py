"""An engine for each mode, served through episodes, and the eager engine that it is compared with.

Both compute the same batches: a failed step is computed again, and the eager engine pads each
decode batch to the size that the other one padded it to. So tokens and logits must be bitwise
identical.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import torch

import cann_sim
from attn_update import UpdateError
from npu_graph_runtime import RunMode
from npu_graph_runtime.errors import DeviceError
from qwen3_engine import (
    Engine,
    EngineConfig,
    SchedulerConfig,
    StepKind,
    StepStatistics,
    pad_decode_batch,
)
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from serving_soak.episode import MAX_LENGTH, MAX_SEQUENCES, NUM_BLOCKS, Captures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from npu_compile import DecodeStep
    from npu_graph_runtime import NpuDevice
    from qwen3_engine import ModelRunner, RequestOutput, StepBatch
    from qwen3_engine.demonstration.workload import Arrival
    from serving_soak.episode import Episode

CAPTURE_SIZES = (1, 2, 4, 8)
PREFILL_SIZES = (32, 160, 640)


@dataclasses.dataclass
class SoakCounts:
    """Statistics of a soak.

    Attributes:
        episodes: number of episodes, by mode and time of capture.
        sequences: number of compared sequences.
        steps: number of successful steps.
        decode_steps: number of successful decode steps, by run mode.
        padded_sizes: padded sizes of decode steps.
        failed_steps: number of failed steps, by fault and type of the error.
        failed_captures: number of captures that the device rejected.
        differing: requests that differ from eager, each with its episode.
    """

    episodes: Counter[str] = dataclasses.field(default_factory=Counter)
    sequences: int = 0
    steps: int = 0
    decode_steps: Counter[str] = dataclasses.field(default_factory=Counter)
    padded_sizes: Counter[int] = dataclasses.field(default_factory=Counter)
    failed_steps: Counter[str] = dataclasses.field(default_factory=Counter)
    failed_captures: int = 0
    differing: list[str] = dataclasses.field(default_factory=list)


class _PaddedEagerly:
    """Runs decode batches eagerly, padded as those of another run were, one size a step."""

    def __init__(self, runner: CompiledModelRunner, sizes: Sequence[int]) -> None:
        self._runner = runner
        self._sizes = iter(sizes)

    def prefill(self, batch: StepBatch) -> torch.Tensor:
        return self._runner.prefill(batch)

    @torch.no_grad()
    def decode(self, batch: StepBatch) -> torch.Tensor:
        model, compiled = self._runner.model, self._runner.compiled
        padded = pad_decode_batch(batch, next(self._sizes))
        model.attention.step_state.load(padded.query_lengths, padded.kv_lengths)
        names = ("input_ids", "positions", "slot_mapping", "block_table")
        inputs = {name: getattr(padded, name).to(compiled.device.torch_device) for name in names}
        return model.compute_logits(compiled(**inputs)[: batch.num_sequences])


class _Served:
    """The runner of a mode, and how its decode steps ran."""

    def __init__(self, runner: CompiledModelRunner, steps: list[DecodeStep]) -> None:
        self.runner = runner
        self.steps = steps


class _Steps:
    def __init__(self) -> None:
        self.seen: list[DecodeStep] = []

    def observe_decode(self, step: DecodeStep, /) -> None:
        self.seen.append(step)


class SoakedEngines:
    """Serves episodes and compares the results with an eager run; close it at the end.

    Args:
        folder: the checkpoint.
        device: the device.
        modes: compile modes; each has a model of its own.
        fuse: whether models are fused.
    """

    def __init__(
        self, folder: Path, device: NpuDevice, *, modes: Sequence[str], fuse: bool
    ) -> None:
        self.counts = SoakCounts()
        self._device = device
        self._served: dict[str, _Served] = {}
        for mode in ("eager", *modes):
            steps = _Steps()
            runner = CompiledModelRunner.load(
                folder,
                {
                    "mode": mode,
                    "fuse": fuse,
                    # The eager one is given padded batches.
                    "capture_sizes": () if mode == "eager" else CAPTURE_SIZES,
                    "prefill_capture_sizes": PREFILL_SIZES,
                },
                device=device,
                num_blocks=NUM_BLOCKS,
                max_length=MAX_LENGTH,
                max_num_sequences=MAX_SEQUENCES,
                observer=steps,
            )
            self._served[mode] = _Served(runner, steps.seen)
            runner.capture()

    def run(self, episode: Episode) -> None:
        """Serve an episode, then serve it eagerly, and compare."""
        served = self._served[episode.mode]
        self._device.synchronize()
        schedule = episode.schedule
        with contextlib.nullcontext() if schedule is None else cann_sim.fuzzed_schedule(schedule):
            is_done = self._capture(served.runner, episode)
            found, sizes = self._serve(served, episode, captures_on=not is_done)
            self._settle()
        while not is_done and served.runner.capture_next():
            pass
        eager = self._served["eager"]
        runner = _PaddedEagerly(eager.runner, sizes)
        expected = _run(self._engine(runner, eager, episode), episode.arrivals, {}, _raise)
        self._compare(episode, found, expected)
        self.counts.episodes[f"{episode.mode}, {episode.captures.value}"] += 1

    def close(self) -> None:
        """Give all runners up."""
        for served in self._served.values():
            served.runner.close()

    def _capture(self, runner: CompiledModelRunner, episode: Episode) -> bool:
        """Capture as the episode says; return whether all is captured."""
        if episode.captures is Captures.KEPT:
            return True
        runner.release()
        if episode.captures is Captures.ANEW:
            self._capture_anew(runner, episode.capture_fault)
            return True
        # Prefill is captured first; the eager run pads it to all of its sizes.
        captures_prefill = runner.compiled.config.prefill_run_modes != (RunMode.EAGER,)
        for _ in range(1 + captures_prefill * len(PREFILL_SIZES)):
            runner.capture_next()
        return False

    def _capture_anew(self, runner: CompiledModelRunner, fault: str) -> None:
        try:
            with cann_sim.injected_faults(fault):
                runner.capture()
        except DeviceError:
            self.counts.failed_captures += 1
            runner.release()
            runner.capture()

    def _serve(
        self, served: _Served, episode: Episode, *, captures_on: bool
    ) -> tuple[list[RequestOutput], list[int]]:
        """Return the outputs, and the padded size of each decode step that ended well."""
        sizes: list[int] = []

        def on_step(step: StepStatistics) -> None:
            self.counts.steps += 1
            if step.kind is StepKind.DECODE:
                ran = served.steps[-1]
                sizes.append(ran.padded_size)
                self.counts.padded_sizes[ran.padded_size] += 1
                self.counts.decode_steps[ran.run_mode.value] += 1
            if captures_on and self.counts.steps % 3 == 0:
                self._capture_between_steps(served.runner, episode.capture_fault)

        def recover(fault: str, error: Exception) -> None:
            self.counts.failed_steps[f"{fault.partition(':')[0]}: {type(error).__name__}"] += 1
            self._settle()
            # A kernel that failed inside a replay leaves its graph with events set, see
            # `DecodeRunner.run`.
            if fault.startswith("run") or episode.recaptures:
                served.runner.release()
                self._capture_anew(served.runner, episode.capture_fault)

        engine = self._engine(served.runner, served, episode, on_step)
        outputs = _run(engine, episode.arrivals, episode.faults, recover)
        served.steps.clear()
        return outputs, sizes

    def _capture_between_steps(self, runner: CompiledModelRunner, fault: str) -> None:
        try:
            with cann_sim.injected_faults(fault):
                runner.capture_next()
        except DeviceError:
            self.counts.failed_captures += 1

    def _settle(self) -> None:
        """Finish the work of the device, and make it usable again after a failure."""
        with contextlib.suppress(RuntimeError):
            self._device.synchronize()
        cann_sim.restart_devices()

    def _engine(
        self,
        runner: ModelRunner,
        served: _Served,
        episode: Episode,
        on_step: Callable[[StepStatistics], None] | None = None,
    ) -> Engine:
        config = EngineConfig(
            num_blocks=episode.num_blocks,
            max_length=MAX_LENGTH,
            scheduler=SchedulerConfig(max_num_sequences=MAX_SEQUENCES, max_prefill_tokens=600),
            record_logits=True,
        )
        return Engine(runner, served.runner.model.config, config, on_step=on_step)

    def _compare(
        self, episode: Episode, found: list[RequestOutput], expected: list[RequestOutput]
    ) -> None:
        for number, (output, other) in enumerate(zip(found, expected, strict=True)):
            self.counts.sequences += 1
            assert output.logits is not None
            assert other.logits is not None
            is_equal = output.logits.numpy().tobytes() == other.logits.numpy().tobytes()
            if output.tokens != other.tokens or not is_equal:
                self.counts.differing.append(f"request {number} of {episode}")


def _raise(_fault: str, error: Exception) -> None:
    raise error


def _run(
    engine: Engine,
    arrivals: Sequence[Arrival],
    faults: Mapping[int, str],
    recover: Callable[[str, Exception], None],
) -> list[RequestOutput]:
    """Run until all requests are over; a step that failed does not count, and is run again."""
    waiting = list(arrivals)
    outputs: dict[int, RequestOutput] = {}
    ids: list[int] = []
    step = attempt = 0
    while waiting or engine.has_work:
        if not engine.has_work:
            step = max(step, waiting[0].step)
        while waiting and waiting[0].step <= step:
            ids.append(engine.add_request(waiting.pop(0).request))
        fault = faults.get(attempt, "")
        attempt += 1
        try:
            with cann_sim.injected_faults(fault):
                ended = engine.step()
        except (DeviceError, UpdateError, RuntimeError) as error:
            recover(fault, error)
            continue
        outputs.update((output.request_id, output) for output in ended)
        step += 1
    return [outputs[request_id] for request_id in ids]
