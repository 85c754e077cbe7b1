"""Draws the dependencies between the packages: ``python tools/architecture_picture.py FILE``.

The boxes and their positions are defined here. The lines are read from the packages' metadata, so
the picture in docs/pictures/architecture.svg shows the declared dependencies; a test compares the
two.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.package import packages

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 860, 342
BOX = (196, 54)
ROW_TITLES = (
    (18, "built from the packages below"),
    (144, "four packages that never import each other"),
    (270, "what they run on"),
)


@dataclass(frozen=True)
class Box:
    """One box: its top left corner, a few words about its purpose, and its colour."""

    x: int
    y: int
    text: str
    color: str = "#ddf0ff"


BOXES = {
    "npu-compile": Box(10, 26, "compiles and runs a model", "#fff1d6"),
    "vllm-npu-graph": Box(224, 26, "adapter for vLLM-Ascend", "#fff1d6"),
    "sglang-npu-graph": Box(438, 26, "adapter for SGLang", "#fff1d6"),
    "npu-graph-testing": Box(652, 26, "tests of devices, updates", "#eceff2"),
    "piecewise-split": Box(10, 152, "splits a graph at operators"),
    "fx-passes": Box(224, 152, "fuses operators of a graph"),
    "attn-update": Box(438, 152, "updates attention in graphs"),
    "npu-graph-runtime": Box(652, 152, "captures and replays"),
    "torch": Box(10, 278, "needed by all of them", "#ffffff"),
    "torch_npu": Box(438, 278, "imported in one file", "#ffffff"),
    "cann-sim": Box(652, 278, "simulates CANN on a CPU", "#eceff2"),
}
# Those that no package declares as a requirement of its own: torch_npu and the simulator.
RUNS_ON = (("npu-graph-runtime", "torch_npu"), ("torch_npu", "cann-sim"))
LINE_COLORS = {
    "npu-compile": "#9a6700",
    "vllm-npu-graph": "#0969da",
    "sglang-npu-graph": "#1a7f37",
    "npu-graph-testing": "#6e7781",
}


def dependencies() -> list[tuple[str, str]]:
    """Return pairs of a package and a sibling that it, or an extra of it, declares."""
    return [
        (package.name, sibling.name)
        for package in packages(ROOT)
        for sibling in package.declared(extras={"attention"}).siblings
    ]


def picture(lines: Iterable[tuple[str, str]]) -> str:
    """Return the picture as SVG, with a line for each dependency."""
    width, height = BOX
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        ),
        "<title>How the packages depend on each other</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for upper, lower in lines:
        start, end = BOXES[upper], BOXES[lower]
        # Lines of different packages start and end at different points.
        shift = 22 * (list(LINE_COLORS).index(upper) - 1.5)
        first = f"{start.x + width / 2 + (end.x - start.x) / 12:g},{start.y + height}"
        last = f"{end.x + width / 2 + shift:g},{end.y}"
        parts.append(
            f'<path d="M{first} L{last}" stroke="{LINE_COLORS[upper]}" fill="none" '
            f'stroke-width="1.4"><title>{upper} needs {lower}</title></path>'
        )
    for upper, lower in RUNS_ON:
        start, end = BOXES[upper], BOXES[lower]
        if start.y == end.y:
            path = f"M{start.x + width},{start.y + height / 2:g} H{end.x}"
        else:
            path = f"M{start.x + width / 4:g},{start.y + height} L{end.x + 3 * width / 4:g},{end.y}"
        parts.append(
            f'<path d="{path}" stroke="#6e7781" fill="none" stroke-width="1.4" '
            f'stroke-dasharray="5 3"><title>{upper} on {lower}</title></path>'
        )
    parts += [
        f'<text x="10" y="{y}" fill="#57606a" font-size="11" paint-order="stroke" stroke="white" '
        f'stroke-width="5">{title}</text>'
        for y, title in ROW_TITLES
    ]
    for name, box in BOXES.items():
        middle = box.x + width / 2
        parts += [
            (
                f'<rect x="{box.x}" y="{box.y}" width="{width}" height="{height}" rx="6" '
                f'fill="{box.color}" stroke="#8c959f"/>'
            ),
            (
                f'<text x="{middle:g}" y="{box.y + 23}" text-anchor="middle" font-weight="bold" '
                f'font-size="13">{name}</text>'
            ),
            (
                f'<text x="{middle:g}" y="{box.y + 41}" text-anchor="middle" fill="#57606a">'
                f"{box.text}</text>"
            ),
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(dependencies()), encoding="utf-8")
