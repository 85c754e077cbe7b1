"""Which sizes are captured and which are dropped, as plain data that can be printed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime.planning.capture_cost import CaptureBudget, CaptureCost


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CapturePlan:
    """The knowledge and decisions of a planner at one time.

    Attributes:
        budget: limits for the captures.
        captured: captured sizes with the cost of each, in the order of capture.
            The first one created the memory pool that all share.
        planned: sizes still to be captured, in order.
        dropped: dropped sizes, each with a sentence that gives the reason.
        used: cost of the captures so far.
        forecast: total cost after all planned sizes are captured; ``None`` before two
            sizes are captured, if there are two to capture.
    """

    budget: CaptureBudget
    captured: Mapping[int, CaptureCost]
    planned: tuple[int, ...]
    dropped: Mapping[int, str]
    used: CaptureCost
    forecast: CaptureCost | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that are captured or will be, from the smallest to the largest."""
        return tuple(sorted({*self.captured, *self.planned}))

    def __str__(self) -> str:
        number = len(self.captured) + len(self.planned) + len(self.dropped)
        kept = ", ".join(map(str, self.sizes)) or "none"
        forecast = "not known yet" if self.forecast is None else self.forecast
        lines = [
            f"capture sizes: {len(self.sizes)} of {number} ({kept})",
            f"budget: {self.budget}; used: {self.used}; forecast: {forecast}",
        ]
        for name, (size, cost) in zip(("first", "second"), self.captured.items(), strict=False):
            lines.append(f"{name} size, {size}: {cost}")
        lines += [f"size {size} dropped: {self.dropped[size]}" for size in sorted(self.dropped)]
        return "\n".join(lines)
