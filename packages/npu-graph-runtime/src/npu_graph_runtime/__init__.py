"""Capture and replay device graphs, on any device that implements one small protocol.

More names are in the submodules ``planning``, ``tracing``, ``diagnosis``, ``observer``, ``device``
(the protocols of a device) and ``errors``.
"""

from npu_graph_runtime.__about__ import __version__
from npu_graph_runtime.agreement import AgreedStep, Exchange, RankAgreement
from npu_graph_runtime.by_signature.graphed import EagerReason, Graphed, GraphedCounters, graphed
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
from npu_graph_runtime.capturing.graphed_callable import GraphCounters, GraphedCallable
from npu_graph_runtime.capturing.input_layout import AddressCheck
from npu_graph_runtime.capturing.tensor_leaves import map_tensors
from npu_graph_runtime.capturing.watching.capture_watch import KeptMemory
from npu_graph_runtime.capturing.watching.watched_weights import weights_of
from npu_graph_runtime.device import GraphDevice
from npu_graph_runtime.devices.cuda import CudaDevice
from npu_graph_runtime.devices.fake import FakeDevice
from npu_graph_runtime.devices.npu import NpuDevice
from npu_graph_runtime.errors import GraphRuntimeError
from npu_graph_runtime.graph_context import CallContext, GraphContext
from npu_graph_runtime.graph_key import GraphKey, largest_first
from npu_graph_runtime.layer_events import LayerEvents, LayerStep
from npu_graph_runtime.run_mode import RunMode

__all__ = [
    "AddressCheck",
    "AgreedStep",
    "CallContext",
    "Capture",
    "CaptureSession",
    "CaptureSizes",
    "CudaDevice",
    "EagerReason",
    "Exchange",
    "FakeDevice",
    "GraphContext",
    "GraphCounters",
    "GraphDevice",
    "GraphKey",
    "GraphRuntimeError",
    "Graphed",
    "GraphedCallable",
    "GraphedCounters",
    "KeptMemory",
    "LayerEvents",
    "LayerStep",
    "NpuDevice",
    "RankAgreement",
    "RunMode",
    "SegmentedGraph",
    "__version__",
    "break_graph",
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
