"""Host time of a decode step by mode, as bars."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from npu_compile.command_line.figures.figure import BLUE, GREY, INK, ORANGE, Figure
from npu_compile.command_line.mode_times import eager_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from npu_compile.command_line.mode_times import ModeTimes


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
