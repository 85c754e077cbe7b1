"""Rewrite the host arguments of attention inside captured graphs, without a host synchronisation.

A `Recorder` records attention launches while a graph is captured, an `UpdatePlan` says which step
parameters reach which launch, and an `UpdateLane` replays and updates, step by step.
"""

from attn_update.__about__ import __version__
from attn_update.errors import (
    ArgumentError,
    AttnUpdateError,
    CaptureError,
    DeadTensorError,
    LaneError,
    MissingLayerError,
    NativeUnavailableError,
    PlanError,
    RecordingError,
    StepParameterError,
    UnknownKeyError,
    UnknownKindError,
    UnknownOperatorError,
    UpdateError,
    WorkspaceError,
)
from attn_update.issuing.issuer_choice import UpdaterChoice
from attn_update.kinds import (
    FIA_V1,
    FIA_V2,
    ContextParallelAttention,
    ContextParallelLatentAttention,
    ContextParallelRank,
    DeviceLengthAttention,
    EncoderAttention,
    FusedInferAttention,
    LatentAttention,
    OperatorFamily,
    PagedAttention,
    context_parallel_attention,
    context_parallel_kinds,
    context_parallel_latent_attention,
    default_kinds,
    encoder_attention,
    fused_infer_attention_v1,
    fused_infer_attention_v2,
    latent_attention_v1,
    latent_attention_v2,
    paged_attention,
    sparse_flash_attention,
)
from attn_update.kinds.fused.attention_geometry import AttentionGeometry, LengthRule, TensorForm
from attn_update.kinds.kind import AttentionKind, Kind, RuledKind, needs_update
from attn_update.kinds.lengths import LengthArray, Lengths
from attn_update.lane.lane_counters import LaneCounters
from attn_update.lane.update_lane import UpdateLane
from attn_update.planning.step_parameters import StepParameters
from attn_update.planning.update_plan import CheckedStep, ParameterGroup, PlannedUpdate, UpdatePlan
from attn_update.recording.automatic_recording import (
    DEFAULT_OPERATORS,
    AutomaticRecording,
    number_layers,
)
from attn_update.recording.record import KeyRecords, Record
from attn_update.recording.recorder import Recorder
from attn_update.task_device import (
    AddressedDevice,
    DirectLaunchDevice,
    Event,
    ExternalEvent,
    FusedUpdateDevice,
    GuardingDevice,
    Stream,
    TaskDevice,
)
from attn_update.updatable_graph import CapturedLaunch, DispatchedGraph, UpdatableGraph
from attn_update.updatable_layers import UpdatableLayers

__all__ = [
    "DEFAULT_OPERATORS",
    "FIA_V1",
    "FIA_V2",
    "AddressedDevice",
    "ArgumentError",
    "AttentionGeometry",
    "AttentionKind",
    "AttnUpdateError",
    "AutomaticRecording",
    "CaptureError",
    "CapturedLaunch",
    "CheckedStep",
    "ContextParallelAttention",
    "ContextParallelLatentAttention",
    "ContextParallelRank",
    "DeadTensorError",
    "DeviceLengthAttention",
    "DirectLaunchDevice",
    "DispatchedGraph",
    "EncoderAttention",
    "Event",
    "ExternalEvent",
    "FusedInferAttention",
    "FusedUpdateDevice",
    "GuardingDevice",
    "KeyRecords",
    "Kind",
    "LaneCounters",
    "LaneError",
    "LatentAttention",
    "LengthArray",
    "LengthRule",
    "Lengths",
    "MissingLayerError",
    "NativeUnavailableError",
    "OperatorFamily",
    "PagedAttention",
    "ParameterGroup",
    "PlanError",
    "PlannedUpdate",
    "Record",
    "Recorder",
    "RecordingError",
    "RuledKind",
    "StepParameterError",
    "StepParameters",
    "Stream",
    "TaskDevice",
    "TensorForm",
    "UnknownKeyError",
    "UnknownKindError",
    "UnknownOperatorError",
    "UpdatableGraph",
    "UpdatableLayers",
    "UpdateError",
    "UpdateLane",
    "UpdatePlan",
    "UpdaterChoice",
    "WorkspaceError",
    "__version__",
    "context_parallel_attention",
    "context_parallel_kinds",
    "context_parallel_latent_attention",
    "default_kinds",
    "encoder_attention",
    "fused_infer_attention_v1",
    "fused_infer_attention_v2",
    "latent_attention_v1",
    "latent_attention_v2",
    "needs_update",
    "number_layers",
    "paged_attention",
    "sparse_flash_attention",
]
