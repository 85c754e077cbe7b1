"""Plans captures: their cost, the sizes that fit a device, and the fastest run mode."""

from npu_graph_runtime.planning.capture_cost import CaptureBudget, CaptureCost
from npu_graph_runtime.planning.capture_planner import CapturePlan, CapturePlanner
from npu_graph_runtime.planning.run_mode_chooser import (
    RunModeCandidate,
    RunModeChoice,
    RunModeChooser,
)

__all__ = [
    "CaptureBudget",
    "CaptureCost",
    "CapturePlan",
    "CapturePlanner",
    "RunModeCandidate",
    "RunModeChoice",
    "RunModeChooser",
]
