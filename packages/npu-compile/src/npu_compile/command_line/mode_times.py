"""Host time of a decode step, by mode: measured, as a table, and as bars."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from typing import TYPE_CHECKING, Any

from npu_compile.command_line.figures.figure import BLUE, GREY, INK, ORANGE, Figure
from npu_compile.command_line.sample_steps import SampleSteps, tells_lengths
from npu_compile.configuration.config import CompileMode
from npu_compile.errors import ConfigError
from npu_graph_runtime import RunMode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from npu_compile.command_line.named_model import NamedModel
    from npu_compile.command_line.progress import Progress
    from npu_compile.configuration.config import CompileConfig
    from npu_compile.runners.runner_statistics import RunnerStatistics


_WARMUP_STEPS = 3
_MICROSECONDS = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ModeTimes:
    """Host time of the decode steps of one mode, in microseconds, from the call to its return.

    Attributes:
        step_us: time of each step.
        update_us: the part of each step spent on launching attention updates.
        statistics: how the steps used the capture sizes, including warm-up steps.
    """

    mode: CompileMode
    step_us: tuple[float, ...]
    update_us: tuple[float, ...]
    statistics: RunnerStatistics

    @property
    def median_us(self) -> float:
        """Median of the steps."""
        return statistics.median(self.step_us)

    def to_mapping(self, eager: ModeTimes | None) -> dict[str, Any]:
        """Return the times as plain data for JSON."""
        return {
            "mode": self.mode.value,
            "median_us": round(self.median_us, 2),
            "median_update_us": round(statistics.median(self.update_us), 2),
            "eager_over_this": None
            if eager is None
            else round(eager.median_us / self.median_us, 3),
            "step_us": [round(value, 2) for value in self.step_us],
            "statistics": self.statistics.to_mapping(),
        }


def modes_of(named: NamedModel) -> tuple[CompileMode, ...]:
    """Return the modes that a model has the arguments for and whose decode steps differ."""
    config = named.config
    modes = [CompileMode.EAGER]
    if config.splitting_ops:
        modes.append(CompileMode.PIECEWISE)
    if named.context is not None:
        modes.append(CompileMode.BREAKABLE)
    if named.decode.get("recorder") is not None or not tells_lengths(named):
        modes.append(CompileMode.FULL)
    return tuple(modes)


def time_modes(
    named: NamedModel, modes: Sequence[CompileMode], *, num_steps: int, progress: Progress
) -> list[ModeTimes]:
    """Time decode steps of a model in several modes, in turns, so that noise affects all alike.

    At most one mode may capture attention in its graphs. The device is synchronised between the
    steps, outside the measured time.

    Raises:
        ConfigError: The model lacks what a mode needs, or modes cannot be combined.
    """
    device = SampleSteps.device_of(named)
    whole = [mode.value for mode in modes if _captures_attention(mode, named.config)]
    if len(whole) > 1:
        raise ConfigError(
            f"timing the modes {', '.join(whole)}: all capture attention in their graphs, under "
            "the same keys of one recorder; time one of them at a time"
        )
    running: dict[CompileMode, SampleSteps] = {}
    times: dict[CompileMode, list[tuple[float, float]]] = {mode: [] for mode in modes}
    try:
        for mode in modes:
            config = dataclasses.replace(named.config, mode=mode, prefill_capture_sizes=())
            running[mode] = steps = SampleSteps(named, config, device=device)
            steps.capture(functools.partial(progress.captured, f"{mode.value}: "))
        for number in range(_WARMUP_STEPS + num_steps):
            progress.step(number + 1, _WARMUP_STEPS + num_steps)
            for mode, steps in running.items():
                device.synchronize()
                started = time.perf_counter()
                steps.run(number)
                seconds = time.perf_counter() - started
                if number >= _WARMUP_STEPS:
                    updating = steps.latest.update_seconds
                    times[mode].append((seconds * _MICROSECONDS, updating * _MICROSECONDS))
        device.synchronize()
        statistics_of = {mode: steps.runner.statistics() for mode, steps in running.items()}
    finally:
        for steps in running.values():
            steps.close()
    return [
        ModeTimes(
            mode=mode,
            step_us=tuple(step for step, _ in taken),
            update_us=tuple(update for _, update in taken),
            statistics=statistics_of[mode],
        )
        for mode, taken in times.items()
    ]


def as_table(times: Sequence[ModeTimes]) -> str:
    """Return the medians, and how the steps used the capture sizes, as readable text."""
    eager = eager_of(times)
    lines = [f"{'mode':<28}{'us/step':>10}{'updates':>10}{'eager / this':>14}"]
    for each in times:
        ratio = "-" if eager is None else f"{eager.median_us / each.median_us:.2f}"
        update = statistics.median(each.update_us)
        lines.append(f"{each.mode.value:<28}{each.median_us:>10.0f}{update:>10.0f}{ratio:>14}")
    lines += [f"\nmode {each.mode.value}, {each.statistics}" for each in times]
    return "\n".join(lines)


def eager_of(times: Sequence[ModeTimes]) -> ModeTimes | None:
    """Return the times of mode ``eager``, if it was timed."""
    return next((each for each in times if each.mode is CompileMode.EAGER), None)


def _captures_attention(mode: CompileMode, config: CompileConfig) -> bool:
    if mode is not CompileMode.MEASURED:
        return mode.decode_run_mode is RunMode.FULL
    # Where none is named, full is among those that are measured.
    return not config.measured_modes or CompileMode.FULL in config.measured_modes


def draw_times(times: Sequence[ModeTimes], path: str | Path) -> None:
    """Draw the median of each mode, its quartiles as a line, and the part of its updates.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    figure = Figure(path, width=7.2, height=0.9 + 0.45 * len(times))
    axes, eager = figure.axes, eager_of(times)
    widest = max(_quartiles(each)[1] for each in times)
    for row, each in enumerate(times):
        median, update = each.median_us, statistics.median(each.update_us)
        low, high = _quartiles(each)
        axes.barh(row, median - update, color=BLUE, height=0.6)
        axes.barh(row, update, left=median - update, color=ORANGE, height=0.6)
        axes.plot([low, high], [row, row], color=INK, linewidth=1.2)
        ratio = ""
        if eager is not None and eager is not each:
            ratio = f" ({eager.median_us / median:.1f}x faster than eager)"
        axes.text(max(high, median) + widest * 0.015, row, f"{median:.0f} us{ratio}", va="center")
    axes.set_yticks(range(len(times)), [each.mode.value for each in times])
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.4)
    axes.set_xlabel("host microseconds of a decode step, median and quartiles")
    if any(statistics.median(each.update_us) for each in times):
        axes.set_title("orange: issuing attention's updates", color=GREY, loc="left", fontsize=9)
    figure.hide_frame("top", "right")
    figure.write()


def _quartiles(times: ModeTimes) -> tuple[float, float]:
    if len(times.step_us) == 1:
        return times.step_us[0], times.step_us[0]
    low, _, high = statistics.quantiles(times.step_us, n=4)
    return low, high
