"""Decode steps as a timeline: the host, the replays with attention by layer, the update lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.command_line.figures.figure import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE_BLUE,
    RED,
    Figure,
)
from npu_compile.command_line.layered_events import (
    ATTENTION,
    UPDATE,
    WAIT,
    is_replay,
    track_of,
)
from npu_compile.command_line.traced_steps import STEPS_TRACK, UPDATES_TRACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from npu_compile.command_line.step_trace import StepTrace

_ROW = 0.66
# Of the timeline: what has room for more than a number.
_WIDE = 0.06
_MICROSECONDS_OF_MILLISECOND = 1000.0


_SIMULATED = (
    "simulated CANN: order and overlap are those of streams and events; kernels compute on a CPU, "
    "so lengths are no times of an NPU"
)


def draw_trace(trace: StepTrace, path: str | Path) -> None:
    """Draw the traced steps, from the first host call to the end of the device's work.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    host, device = trace.spans(trace.host), trace.spans(trace.device)
    names = _track_names(trace.host)
    steps = [event for event in host if names.get(track_of(event)) == STEPS_TRACK]
    updates = _with_role(device, UPDATE)
    rows = ["host", *(["device"] if device else []), *(["update lane"] if updates else [])]
    figure = Figure(path, width=10.0, height=1.2 + 0.85 * len(rows))
    bars = _Bars(figure.axes, steps[0]["ts"])
    length = max(event["ts"] + event["dur"] for event in (*steps, *device)) - steps[0]["ts"]
    for number, step in enumerate(steps, start=1):
        text = f"step {number}" if step["dur"] > _WIDE * length else str(number)
        bars.add(step, 0.0, PALE_BLUE, text=text, edge=BLUE)
    for event in host:
        if names.get(track_of(event)) == UPDATES_TRACK:
            bars.add(event, 0.0, ORANGE)
        elif event.get("args", {}).get("runs") == "eagerly":
            bars.add(event, 0.0, GREEN, height=0.4)
    _draw_replays(bars, device)
    for event in updates:
        bars.add(event, 2.0, ORANGE, edge=ORANGE)
    _draw_arrows(bars, trace)
    _finish(figure, rows, bars)


def _draw_replays(bars: _Bars, device: Sequence[Mapping[str, Any]]) -> None:
    replays = [event for event in device if is_replay(event)]
    streams = {track_of(event) for event in replays}
    for event in device:
        if event["cat"] == "kernel" and (not streams or track_of(event) in streams):
            bars.add(event, 1.0, GREY, height=0.4)
    for replay in replays:
        bars.add(replay, 1.0, "none", edge=INK)
    layers: dict[str, int] = {}
    for event in _with_role(device, ATTENTION):
        number = layers.setdefault(event["args"]["layer"], len(layers))
        bars.add(event, 1.0, BLUE, height=0.55, text=str(number))
    for event in _with_role(device, WAIT):
        if not event["args"]["in_time"]:
            bars.add(event, 1.0, RED, height=0.55, edge=RED)


def _with_role(device: Sequence[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    return [event for event in device if event.get("args", {}).get("role") == role]


def _draw_arrows(bars: _Bars, trace: StepTrace) -> None:
    """Draw an arrow from each record of an external event to the wait that it ended."""
    starts = {event["id"]: event for event in trace.device if event["ph"] == "s"}
    for end in trace.device:
        start = starts.get(end.get("id"))
        if end["ph"] == "f" and start is not None and start["ts"] >= trace.began:
            bars.arrow(start["ts"], 2.0, end["ts"], 1.0)


def _finish(figure: Figure, rows: Sequence[str], bars: _Bars) -> None:
    axes = figure.axes
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.01 * bars.end, bars.end * 1.01)
    axes.set_xlabel("milliseconds since the first step's call")
    if len(rows) > 1:
        axes.set_title(_SIMULATED, loc="left", fontsize=8, color=GREY)
    _explain_colours(axes, bars, has_lane=len(rows) > 2)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    figure.hide_frame("top", "right", "left")
    figure.write()


def _explain_colours(axes: Any, bars: _Bars, *, has_lane: bool) -> None:
    known = [(PALE_BLUE, "host: a step's call")]
    if bars.has(GREEN):
        known.append((GREEN, "between two segments"))
    if has_lane:
        known += [
            (ORANGE, "issuing updates, and each update"),
            (BLUE, "attention of a layer"),
            (RED, "waiting for an update"),
        ]
    if bars.has(GREY):
        known.append((GREY, "other kernels" if has_lane else "kernels; framed: a replay"))
    for colour, text in known:
        axes.barh(0, 0, color=colour, label=text)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=len(known), frameon=False, fontsize=8
    )


class _Bars:
    """Bars on rows, in milliseconds since a start time.

    Attributes:
        end: end of the last bar.
    """

    def __init__(self, axes: Any, began: float) -> None:
        self._axes = axes
        self._began = began
        self.end = 0.0
        self._colours: set[str] = set()

    def has(self, colour: str) -> bool:
        return colour in self._colours

    def add(
        self,
        event: Mapping[str, Any],
        row: float,
        colour: str,
        *,
        height: float = _ROW,
        edge: str | None = None,
        text: str = "",
    ) -> None:
        self._colours.add(colour)
        begin, length = self._at(event["ts"]), event["dur"] / _MICROSECONDS_OF_MILLISECOND
        self.end = max(self.end, begin + length)
        self._axes.barh(
            row,
            length,
            left=begin,
            height=height,
            color=colour,
            edgecolor=edge or "none",
            linewidth=0.8,
        )
        if text:
            ink = "white" if colour == BLUE else INK
            place = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink}
            self._axes.text(begin + length / 2, row, text, **place)

    def arrow(self, begin: float, row: float, end: float, end_row: float) -> None:
        tail, head = (self._at(begin), row - _ROW / 2), (self._at(end), end_row + _ROW / 2)
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        self._axes.annotate("", xy=head, xytext=tail, arrowprops=arrow)

    def _at(self, time: float) -> float:
        return (time - self._began) / _MICROSECONDS_OF_MILLISECOND


def _track_names(events: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], str]:
    return {
        track_of(event): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
