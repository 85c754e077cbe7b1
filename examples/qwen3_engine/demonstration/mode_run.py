"""One workload in one compile mode, with its outputs and its host cost."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qwen3_engine.demonstration.workload import run_workload
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from qwen3_engine.serving.engine import Engine, EngineConfig, StepStatistics
from qwen3_engine.serving.scheduler import SchedulerConfig, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch

    from npu_compile import CompilationReport, DecodeStep
    from npu_graph_runtime import GraphDevice
    from qwen3_engine.demonstration.workload import Arrival
    from qwen3_engine.serving.sequence import RequestOutput

_US_PER_S = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeSettings:
    """Settings that are the same for all modes of a comparison.

    Attributes:
        folder: the checkpoint.
        capture_sizes: decode batch sizes to capture graphs for.
        num_blocks: blocks of the key/value cache.
        max_length: tokens of the longest sequence.
        max_num_sequences: maximum number of running sequences.
        prefill_capture_sizes: numbers of tokens to capture prefill graphs for.
        dtype: dtype of the model; by default that of the checkpoint.
        refuse_non_finite: as in ``EngineConfig``.
        options: more keys of ``npu_compile.CompileConfig``.
    """

    folder: str | Path
    capture_sizes: tuple[int, ...]
    num_blocks: int
    max_length: int
    max_num_sequences: int
    prefill_capture_sizes: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    refuse_non_finite: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeResult:
    """The outputs and the host cost of a mode.

    Attributes:
        mode: the compile mode.
        outputs: outputs by arrival, with the logits of every token.
        reports: one for each compiled graph.
        num_graphs: captured graphs, over all sizes and pieces.
        decode_steps: cost of each decode step, as observed by the decode runner.
        step_us: host microseconds of each decode step in the runner, including logits.
        launches: operator launches of each decode step, if they can be counted.
    """

    mode: str
    outputs: tuple[RequestOutput, ...]
    reports: tuple[CompilationReport, ...]
    num_graphs: int
    decode_steps: tuple[DecodeStep, ...]
    step_us: tuple[float, ...]
    launches: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens generated."""
        return sum(len(output.tokens) for output in self.outputs)

    @property
    def num_fusions(self) -> int:
        """Fusions made in the graph that serves most batch sizes, the first one compiled."""
        fusions = self.reports[0].fusions
        return 0 if fusions is None else len(fusions.matches())

    @property
    def median_step_us(self) -> float:
        """Median host microseconds of a decode step."""
        return statistics.median(self.step_us)

    @property
    def median_update_us(self) -> float:
        """Median host microseconds that a decode step spent on updating attention."""
        return statistics.median(step.update_seconds for step in self.decode_steps) * _US_PER_S

    @property
    def median_launches(self) -> float:
        """Median operator launches of a decode step."""
        return statistics.median(self.launches)


class _Record:
    """Collects reports of the runner and the engine."""

    def __init__(self, count_launches: Callable[[], int] | None) -> None:
        self.decode_steps: list[DecodeStep] = []
        self.step_us: list[float] = []
        self.launches: list[int] = []
        self._count_launches = count_launches
        self._launches_before = count_launches() if count_launches else 0

    def observe_decode(self, step: DecodeStep, /) -> None:
        self.decode_steps.append(step)

    def observe_step(self, step: StepStatistics) -> None:
        # The engine has read the logits of the step, so all its launches have been made.
        launches = self._count_launches() if self._count_launches else 0
        if step.kind is StepKind.DECODE:
            self.step_us.append(step.run_us)
            if self._count_launches is not None:
                self.launches.append(launches - self._launches_before)
        self._launches_before = launches


def run_mode(
    mode: str,
    settings: ModeSettings,
    arrivals: Sequence[Arrival],
    *,
    device: GraphDevice,
    count_launches: Callable[[], int] | None = None,
    on_captured: Callable[[int, int, int], None] | None = None,
    on_step: Callable[[StepStatistics], None] | None = None,
) -> ModeResult:
    """Load, compile and capture a model, run a workload, and release everything.

    Args:
        mode: a compile mode.
        settings: settings common to all modes.
        arrivals: the workload.
        device: the device.
        count_launches: returns the number of operator launches so far.
        on_captured: called after each capture size with (size, sizes done, total sizes).
        on_step: called after each engine step.
    """
    record = _Record(count_launches)
    runner = CompiledModelRunner.load(
        settings.folder,
        {
            "mode": mode,
            "capture_sizes": settings.capture_sizes,
            "prefill_capture_sizes": settings.prefill_capture_sizes,
            **settings.options,
        },
        device=device,
        num_blocks=settings.num_blocks,
        max_length=settings.max_length,
        max_num_sequences=settings.max_num_sequences,
        dtype=settings.dtype,
        observer=record,
    )

    def observe(step: StepStatistics) -> None:
        record.observe_step(step)
        if on_step is not None:
            on_step(step)

    try:
        runner.capture(on_captured=on_captured)
        engine = Engine(
            runner,
            runner.model.config,
            EngineConfig(
                num_blocks=settings.num_blocks,
                max_length=settings.max_length,
                scheduler=SchedulerConfig(max_num_sequences=settings.max_num_sequences),
                record_logits=True,
                refuse_non_finite=settings.refuse_non_finite,
            ),
            on_step=observe,
        )
        outputs = run_workload(engine, arrivals)
        num_graphs = runner.compiled.num_captured_graphs
    finally:
        runner.close()
    return ModeResult(
        mode=mode,
        outputs=tuple(outputs),
        reports=runner.compiled.reports,
        num_graphs=num_graphs,
        decode_steps=tuple(record.decode_steps),
        step_us=tuple(record.step_us),
        launches=tuple(record.launches),
    )


def differing_requests(result: ModeResult, expected: ModeResult) -> list[int]:
    """Return the requests whose tokens or logits are not bitwise those of another mode."""
    pairs = zip(result.outputs, expected.outputs, strict=True)
    return [
        index for index, (output, other) in enumerate(pairs) if not _bitwise_equal(output, other)
    ]


def _bitwise_equal(output: RequestOutput, other: RequestOutput) -> bool:
    if output.tokens != other.tokens or output.finish_reason != other.finish_reason:
        return False
    if output.logits is None or other.logits is None:
        return output.logits is other.logits
    return output.logits.numpy().tobytes() == other.logits.numpy().tobytes()
