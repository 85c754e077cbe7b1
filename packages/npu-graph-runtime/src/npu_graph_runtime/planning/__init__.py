"""Plans captures: their cost, the sizes that fit a device, and the fastest run mode."""

from npu_graph_runtime.planning.capture_cost import CaptureBudget, CaptureCost
from npu_graph_runtime.planning.capture_plan import CapturePlan
from npu_graph_runtime.planning.capture_planner import CapturePlanner
from npu_graph_runtime.planning.run_mode_choice import RunModeChoice
from npu_graph_runtime.planning.run_mode_chooser import RunModeCandidate, RunModeChooser

__all__ = [
    "CaptureBudget",
    "CaptureCost",
    "CapturePlan",
    "CapturePlanner",
    "RunModeCandidate",
    "RunModeChoice",
    "RunModeChooser",
]
