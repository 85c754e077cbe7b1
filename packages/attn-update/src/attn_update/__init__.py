"""Update the host arguments of attention inside captured graphs, without a host synchronisation.

A `Recorder` records attention launches while a graph is captured, an `UpdatePlan` maps step
parameters to launches, and an `UpdateLane` replays and updates, step by step. `attn_update.kinds`
has kinds of attention with options, and the protocols for a kind of your own.
"""

from attn_update.__about__ import __version__
from attn_update.errors import (
    ArgumentError,
    AttnUpdateError,
    DeadTensorError,
    LaneError,
    PlanError,
    RecordingError,
    StepParameterError,
    UnknownNameError,
    UpdateError,
)
from attn_update.issuing.issuer_choice import UpdaterChoice
from attn_update.kinds.lengths import Lengths
from attn_update.lane.update_lane import UpdateLane
from attn_update.planning.update_plan import ParameterGroup, StepParameters, UpdatePlan
from attn_update.recording.automatic_recording import AutomaticRecording
from attn_update.recording.recorder import Recorder
from attn_update.task_device import AddressedDevice, TaskDevice
from attn_update.updatable_graph import CapturedLaunch, DispatchedGraph, UpdatableGraph
from attn_update.updatable_layers import UpdatableLayers

__all__ = [
    "AddressedDevice",
    "ArgumentError",
    "AttnUpdateError",
    "AutomaticRecording",
    "CapturedLaunch",
    "DeadTensorError",
    "DispatchedGraph",
    "LaneError",
    "Lengths",
    "ParameterGroup",
    "PlanError",
    "Recorder",
    "RecordingError",
    "StepParameterError",
    "StepParameters",
    "TaskDevice",
    "UnknownNameError",
    "UpdatableGraph",
    "UpdatableLayers",
    "UpdateError",
    "UpdateLane",
    "UpdatePlan",
    "UpdaterChoice",
    "__version__",
]
