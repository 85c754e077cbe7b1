"""The operators of a model before and after fusion, side by side."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from npu_compile.command_line.figures.figure import (
    FAINT,
    GREEN,
    GREY,
    INK,
    PALE_GREEN,
    PALE_RED,
    RED,
    Figure,
)
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fx_passes import MatchRecord
    from npu_compile.explaining.explanation import Explanation
    from npu_compile.explaining.launched_operators import LaunchedOperator
    from npu_compile.explaining.layers import LayerGroup

_WIDTH = 4.0
_GAP = 1.6
_HEIGHT = 0.74


def draw_fusions(explanation: Explanation, path: str | Path) -> None:
    """Draw the launches of a step before and after fusion, and how they correspond.

    Raises:
        ConfigError: The configuration fuses nothing, matplotlib is missing, or the file cannot be
            written.
    """
    before, after = explanation.operators_before, explanation.operators_after
    fusions = explanation.report.fusions
    if before is None or after is None or fusions is None:
        raise ConfigError(
            f"drawing the fusions of {explanation.name}: the configuration says fuse=False "
            "or fusions='none'"
        )
    layers = explanation.layers
    before, after = _folded(layers, before), _folded(layers, after)
    left = {each.node: float(row) for row, each in enumerate(before)}
    # A node may stay and compute something else, so names alone do not tell.
    gone = {each.node for each in {*before} - {*after}}
    new = {each.node for each in {*after} - {*before}}
    links = [_became(match, gone, new) for match in fusions.matches()]
    right = _rows_after(after, left, links)
    lowest = max((*left.values(), *right.values()), default=0.0)
    figure = Figure(path, width=8.0, height=0.7 + 0.27 * (lowest + 2))
    axes = figure.axes
    for link in links:
        # What a match made or replaced in a layer that is folded away is not in the picture.
        olds = [node for node in link[0] if node in left]
        for old, made in itertools.product(olds, [node for node in link[1] if node in right]):
            places = ([_WIDTH, _WIDTH + _GAP], [left[old], right[made]])
            axes.plot(*places, color=GREEN, linewidth=0.9, alpha=0.7)
    _column(axes, 0.0, before, left, gone, (PALE_RED, RED))
    _column(axes, _WIDTH + _GAP, after, right, new, (PALE_GREEN, GREEN))
    counts = (explanation.launches_before, explanation.launches_after)
    for side, (what, count) in enumerate(zip(("before", "after"), counts, strict=True)):
        place = side * (_WIDTH + _GAP) + _WIDTH / 2
        text = f"{what} fusion: {count} launches"
        axes.text(place, -1.0, text, ha="center", fontweight="bold", color=INK)
    axes.set_xlim(-0.05, 2 * _WIDTH + _GAP + 0.05)
    axes.set_ylim(lowest + 0.6, -1.5)
    axes.axis("off")
    figure.write()


def _folded(
    layers: Sequence[LayerGroup], operators: Sequence[LaunchedOperator]
) -> tuple[LaunchedOperator, ...]:
    """Return the operators of one layer of each group, with the number of layers in the name."""
    count: dict[str, int] = {}
    for group in layers:
        count.update((each.node, group.count) for each in (*group.before, *group.after))
    return tuple(
        dataclasses.replace(each, name=f"{each.name}  x {count[each.node]}")
        if count[each.node] > 1
        else each
        for each in operators
        if each.node in count
    )


def _became(match: MatchRecord, gone: set[str], new: set[str]) -> tuple[list[str], list[str]]:
    """Return the operators that a match replaced, and their replacements."""
    old = {match.anchor, *match.removed, *match.replaced}
    made = {match.anchor, *match.created, *match.replaced.values()}
    return sorted(old & gone), sorted(made & new)


def _rows_after(
    after: Sequence[LaunchedOperator],
    left: dict[str, float],
    links: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> dict[str, float]:
    """Return the rows of the right side: unchanged operators as on the left, new ones in place."""
    wanted = dict(left)
    for old, made in links:
        rows = [left[name] for name in old if name in left]
        wanted.update((name, sum(rows) / len(rows)) for name in made if rows)
    right: dict[str, float] = {}
    free = 0.0
    for each in after:
        right[each.node] = max(free, wanted.get(each.node, free))
        free = right[each.node] + 1.0
    return right


def _column(
    axes: Any,
    at: float,
    operators: Sequence[LaunchedOperator],
    rows: dict[str, float],
    marked: set[str],
    colours: tuple[str, str],
) -> None:
    for each in operators:
        fill, edge = colours if each.node in marked else ("white", FAINT)
        row = rows[each.node]
        style = "solid" if each.shapes else "dashed"
        x, y = (at, at + _WIDTH), (row - _HEIGHT / 2, row + _HEIGHT / 2)
        corners = ((0, 0), (1, 0), (1, 1), (0, 1))
        outline = [(x[i], y[j]) for i, j in corners]
        axes.fill(*zip(*outline, strict=True), facecolor=fill, edgecolor=edge, linestyle=style)
        axes.text(at + 0.08, row, each.name, va="center", fontsize=8, family="monospace")
        axes.text(
            at + _WIDTH - 0.08, row, each.shapes, va="center", ha="right", fontsize=6.5, color=GREY
        )
