"""The fastest run mode for a graph key, with the measured cost of each mode."""

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
    """The run mode chosen for a key, with its figures; observers receive it.

    Attributes:
        key: key of the steps.
        chosen: the run mode.
        seconds: median host time of a step in each measured run mode; if ranks chose
            together, that of the slowest rank.
        rounds: number of steps measured in each mode.
        refused: run modes that the device could not capture, each with its error; ``None`` for one
            that another rank's device could not capture.
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
