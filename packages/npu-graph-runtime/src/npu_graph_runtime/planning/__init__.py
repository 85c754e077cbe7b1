"""What captures cost, which capture sizes fit a device, and which run mode is fastest."""

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
