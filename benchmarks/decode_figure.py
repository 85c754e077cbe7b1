"""Host time of a decode step by mode as bars, beside torch_npu alone, for bench_decode.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_compile.command_line.figures.figure import BLUE, GREY, ORANGE, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DRAWN = {
    "eager": "eager, operators fused",
    "piecewise": "piecewise",
    "breakable": "breakable",
    "peer: NPUGraph.update": "torch_npu alone: NPUGraph.update",
    "full": "full",
}


def draw_host_time(microseconds: Mapping[str, float], path: str | Path, title: str) -> None:
    """Draw one bar for each subject, with its speedup over eager.

    Args:
        microseconds: Median of a step by subject; those that ``DRAWN`` names.
        path: File to write, SVG or PNG.
        title: Title of the figure.
    """
    figure = Figure(path, width=7.6, height=0.34 + 0.19 * len(DRAWN))
    axes, widest = figure.axes, max(microseconds.values())
    for row, (subject, label) in enumerate(DRAWN.items()):
        median = microseconds[subject]
        color = GREY if subject.startswith("peer") else ORANGE if subject == "eager" else BLUE
        axes.barh(row, median, color=color, height=0.62)
        faster = "" if subject == "eager" else f"   {microseconds['eager'] / median:.1f}x faster"
        axes.text(median + widest * 0.012, row, f"{median:,.0f} us{faster}", va="center")
        axes.text(-widest * 0.012, row, label, va="center", ha="right")
    axes.set_yticks([])
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.12)
    axes.set_title(title, loc="left", fontsize=9)
    figure.hide_frame("top", "right", "bottom")
    figure.write()
