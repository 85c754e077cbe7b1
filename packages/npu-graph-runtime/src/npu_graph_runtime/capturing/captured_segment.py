"""One captured segment of a breakable capture, and its name in messages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_graph_runtime.device import DeviceGraph


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CapturedPart:
    """Work inside a segment named by :func:`~npu_graph_runtime.runs_captured`.

    Attributes:
        name: as given.
        result: its result, without keeping memory alive; valid after the replay of its segment
            until that of the next one. ``None`` if the work contains a break.
    """

    name: str
    result: Any


@dataclasses.dataclass(kw_only=True, slots=True, eq=False)
class CapturedSegment:
    """A graph between two functions that run eagerly.

    Attributes:
        graph: the captured graph.
        number: number of the segment among the captured ones, from 1.
        behind: the eager call before it; ``None`` for the first segment.
        before: the eager call after it; ``None`` for the last segment, and during its capture.
        parts: the named work inside, in order.
    """

    graph: DeviceGraph
    number: int
    behind: str | None
    before: str | None = None
    parts: list[CapturedPart] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        if self.parts:
            place = ", ".join(part.name for part in self.parts)
        elif self.behind and self.before:
            place = f"between {self.behind} and {self.before}"
        elif self.behind or self.before:
            place = f"behind {self.behind}" if self.behind else f"before {self.before}"
        else:
            return f"segment {self.number}"
        return f"segment {self.number} ({place})"

    def reset(self) -> None:
        """Release the graph."""
        self.graph.reset()
        self.parts.clear()
