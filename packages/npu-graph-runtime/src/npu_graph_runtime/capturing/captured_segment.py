"""One captured segment of a breakable capture, and what messages call it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_graph_runtime.device import DeviceGraph


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CapturedPart:
    """What :func:`~npu_graph_runtime.runs_captured` named inside a segment.

    Attributes:
        name: as given.
        result: what it returned, held without its memory; good behind the replay of its segment
            until that of the next one. ``None`` where a break lies inside.
    """

    name: str
    result: Any


@dataclasses.dataclass(kw_only=True, slots=True, eq=False)
class CapturedSegment:
    """A graph between two functions that run eagerly.

    Attributes:
        graph: what was captured.
        number: of the segment among the captured ones, from 1.
        behind: the eager call in front of it; ``None`` for the first segment.
        before: the eager call behind it; ``None`` for the last segment, and during its capture.
        parts: what was named inside, in order.
    """

    graph: DeviceGraph
    number: int
    behind: str | None
    before: str | None = None
    parts: list[CapturedPart] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        """Return what messages call it."""
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
