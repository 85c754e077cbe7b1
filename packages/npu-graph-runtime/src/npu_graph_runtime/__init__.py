"""Capture and replay device graphs through a small device interface."""

from npu_graph_runtime.__about__ import __version__
from npu_graph_runtime.agreement import AgreedStep, Exchange, RankAgreement
from npu_graph_runtime.by_signature.graphed import (
    EagerReason,
    Graphed,
    GraphedCounters,
    graphed,
)
from npu_graph_runtime.capture_sizes import (
    CaptureSizes,
    sglang_decode_capture_sizes,
    sglang_prefill_capture_sizes,
    vllm_capture_sizes,
)
from npu_graph_runtime.capturing.breakable_capture import (
    SegmentedGraph,
    break_graph,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.capturing.capture_session import Capture, CaptureSession
from npu_graph_runtime.capturing.graphed_callable import GraphCounters, GraphedCallable, MissPolicy
from npu_graph_runtime.capturing.guarding.capture_finding import CaptureFinding, FindingKind
from npu_graph_runtime.capturing.guarding.capture_guard import CaptureGuard
from npu_graph_runtime.capturing.guarding.uncapturable_work import (
    UncapturableWork,
    find_uncapturable,
)
from npu_graph_runtime.capturing.input_layout import AddressCheck
from npu_graph_runtime.capturing.tensor_leaves import map_tensors
from npu_graph_runtime.capturing.watching.capture_watch import KeptMemory
from npu_graph_runtime.capturing.watching.watched_weights import weights_of
from npu_graph_runtime.device import (
    AllocatorHistory,
    AllocatorRecord,
    DeviceGraph,
    Event,
    ExternalEvent,
    GraphDevice,
    GuardingDevice,
    HistoryDevice,
    MemoryFigures,
    SnapshotDevice,
    Stream,
    TaskDevice,
)
from npu_graph_runtime.devices.cuda import CudaDevice
from npu_graph_runtime.devices.fake import FakeDevice
from npu_graph_runtime.devices.npu import NpuDevice
from npu_graph_runtime.errors import (
    CaptureSessionError,
    CaptureSizeError,
    CaptureStateError,
    ContextThreadError,
    DeadlockError,
    DeviceError,
    DeviceTimeoutError,
    DeviceUnavailableError,
    EagerSegmentError,
    FeatureNotSupportedError,
    FrozenStateWarning,
    GraphKeyError,
    GraphNotCapturedError,
    GraphRuntimeError,
    HardwareError,
    IllegalWhileCapturingError,
    InputAddressError,
    InvalidArgumentError,
    KeptMemoryError,
    KernelError,
    OutOfDeviceMemoryError,
    OutOfDeviceResourcesError,
    RankDisagreementError,
    RankFailedError,
    ReplacedWeightError,
    ReplayRefusedError,
    ShadowDifferenceError,
    TaskGroupError,
    UncapturableError,
    UnknownDeviceError,
    UnsupportedInputError,
    WeakOutputError,
)
from npu_graph_runtime.failures.comparison import find_first_difference
from npu_graph_runtime.failures.diagnosis import diagnose, find_error_code
from npu_graph_runtime.failures.difference import DifferenceKind, FirstDifference, Side
from npu_graph_runtime.failures.error_codes import ERROR_CODES, ErrorCode
from npu_graph_runtime.failures.shadow_validation import ShadowValidation
from npu_graph_runtime.failures.tensor_dump import DumpedTensor, TensorDump
from npu_graph_runtime.graph_context import CallContext, GraphContext
from npu_graph_runtime.graph_key import GraphKey, largest_first
from npu_graph_runtime.observer import (
    CaptureSessionClosed,
    CaptureSessionOpened,
    GraphCaptured,
    GraphMissed,
    GraphReleased,
    GraphReplayed,
    RuntimeEvent,
    RuntimeObserver,
    SegmentReplayed,
)
from npu_graph_runtime.planning.capture_cost import CaptureBudget, CaptureCost
from npu_graph_runtime.planning.capture_plan import CapturePlan
from npu_graph_runtime.planning.capture_planner import CapturePlanner
from npu_graph_runtime.planning.run_mode_choice import RunModeChoice
from npu_graph_runtime.planning.run_mode_chooser import RunModeCandidate, RunModeChooser
from npu_graph_runtime.run_mode import RunMode
from npu_graph_runtime.tracing.trace import Trace
from npu_graph_runtime.tracing.trace_observer import TraceObserver

__all__ = [
    "ERROR_CODES",
    "AddressCheck",
    "AgreedStep",
    "AllocatorHistory",
    "AllocatorRecord",
    "CallContext",
    "Capture",
    "CaptureBudget",
    "CaptureCost",
    "CaptureFinding",
    "CaptureGuard",
    "CapturePlan",
    "CapturePlanner",
    "CaptureSession",
    "CaptureSessionClosed",
    "CaptureSessionError",
    "CaptureSessionOpened",
    "CaptureSizeError",
    "CaptureSizes",
    "CaptureStateError",
    "ContextThreadError",
    "CudaDevice",
    "DeadlockError",
    "DeviceError",
    "DeviceGraph",
    "DeviceTimeoutError",
    "DeviceUnavailableError",
    "DifferenceKind",
    "DumpedTensor",
    "EagerReason",
    "EagerSegmentError",
    "ErrorCode",
    "Event",
    "Exchange",
    "ExternalEvent",
    "FakeDevice",
    "FeatureNotSupportedError",
    "FindingKind",
    "FirstDifference",
    "FrozenStateWarning",
    "GraphCaptured",
    "GraphContext",
    "GraphCounters",
    "GraphDevice",
    "GraphKey",
    "GraphKeyError",
    "GraphMissed",
    "GraphNotCapturedError",
    "GraphReleased",
    "GraphReplayed",
    "GraphRuntimeError",
    "Graphed",
    "GraphedCallable",
    "GraphedCounters",
    "GuardingDevice",
    "HardwareError",
    "HistoryDevice",
    "IllegalWhileCapturingError",
    "InputAddressError",
    "InvalidArgumentError",
    "KeptMemory",
    "KeptMemoryError",
    "KernelError",
    "MemoryFigures",
    "MissPolicy",
    "NpuDevice",
    "OutOfDeviceMemoryError",
    "OutOfDeviceResourcesError",
    "RankAgreement",
    "RankDisagreementError",
    "RankFailedError",
    "ReplacedWeightError",
    "ReplayRefusedError",
    "RunMode",
    "RunModeCandidate",
    "RunModeChoice",
    "RunModeChooser",
    "RuntimeEvent",
    "RuntimeObserver",
    "SegmentReplayed",
    "SegmentedGraph",
    "ShadowDifferenceError",
    "ShadowValidation",
    "Side",
    "SnapshotDevice",
    "Stream",
    "TaskDevice",
    "TaskGroupError",
    "TensorDump",
    "Trace",
    "TraceObserver",
    "UncapturableError",
    "UncapturableWork",
    "UnknownDeviceError",
    "UnsupportedInputError",
    "WeakOutputError",
    "__version__",
    "break_graph",
    "diagnose",
    "find_error_code",
    "find_first_difference",
    "find_uncapturable",
    "graphed",
    "largest_first",
    "map_tensors",
    "runs_captured",
    "runs_eagerly",
    "sglang_decode_capture_sizes",
    "sglang_prefill_capture_sizes",
    "vllm_capture_sizes",
    "weights_of",
]
