"""Which run mode serves the steps of a graph key fastest, and what each was measured to cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime.errors import DeviceError
    from npu_graph_runtime.graph_key import GraphKey
    from npu_graph_runtime.run_mode import RunMode


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunModeChoice:
    """How the steps of a key run from now on, with the figures; an observer is told of it.

    Attributes:
        key: of the steps.
        chosen: the run mode.
        seconds: median host time of a step in each run mode that was measured; where ranks chose
            together that of the slowest rank.
        rounds: steps measured in each.
        refused: run modes that the device did not capture, each with its error; ``None`` for one
            that another rank's device did not capture.
    """

    key: GraphKey
    chosen: RunMode
    seconds: Mapping[RunMode, float]
    rounds: int
    refused: Mapping[RunMode, DeviceError | None]

    @property
    def chosen_seconds(self) -> float:
        """Median host time of a step in the chosen mode."""
        return self.seconds[self.chosen]

    def __str__(self) -> str:
        """Return the choice as one line for a person, the fastest mode first."""
        own = self.chosen_seconds
        parts = [f"{self.key}: {self.chosen.value} {_microseconds(own)} a step"]
        for mode, seconds in sorted(self.seconds.items(), key=lambda each: each[1]):
            if mode is not self.chosen:
                parts.append(f"{mode.value} {_microseconds(seconds)} ({seconds / own:.2f}x)")
        parts += [
            f"{mode.value} refused: {error or 'by another rank'}"
            for mode, error in self.refused.items()
        ]
        return f"{', '.join(parts)}; median of {self.rounds}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"
