"""A simulated CANN: the unmodified torch_npu runs on a CPU."""

from cann_sim.__about__ import __version__
from cann_sim._required_python import REQUIRED_PYTHON as _REQUIRED_PYTHON  # noqa: F401 (first)
from cann_sim.activation import activate, is_active, launch_environment
from cann_sim.building.native_build import Build, build
from cann_sim.inventory.coverage import Coverage, MissingOperator, Refusal, coverage, read_coverage
from cann_sim.simulated_device.clock import ClockConstant, clock_constants, virtual_time
from cann_sim.simulated_device.counters import Counters, counters
from cann_sim.simulated_device.faults import injected_faults, restart_devices, set_faults
from cann_sim.simulated_device.schedule import fuzzed_schedule, schedule, set_schedule
from cann_sim.simulated_device.stalls import Stall, read_stalls

__all__ = [
    "Build",
    "ClockConstant",
    "Counters",
    "Coverage",
    "MissingOperator",
    "Refusal",
    "Stall",
    "__version__",
    "activate",
    "build",
    "clock_constants",
    "counters",
    "coverage",
    "fuzzed_schedule",
    "injected_faults",
    "is_active",
    "launch_environment",
    "read_coverage",
    "read_stalls",
    "restart_devices",
    "schedule",
    "set_faults",
    "set_schedule",
    "virtual_time",
]
