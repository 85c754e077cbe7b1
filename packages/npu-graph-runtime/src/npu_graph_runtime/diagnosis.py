"""What a capture cannot record, where two runs differ, and what a device error means."""

from npu_graph_runtime.capturing.guarding.capture_finding import CaptureFinding, FindingKind
from npu_graph_runtime.capturing.guarding.capture_guard import CaptureGuard
from npu_graph_runtime.capturing.guarding.uncapturable_work import (
    UncapturableWork,
    find_uncapturable,
)
from npu_graph_runtime.failures.comparison import find_first_difference
from npu_graph_runtime.failures.diagnosis import diagnose, find_error_code
from npu_graph_runtime.failures.difference import DifferenceKind, FirstDifference, Side
from npu_graph_runtime.failures.error_codes import ERROR_CODES, ErrorCode
from npu_graph_runtime.failures.shadow_validation import ShadowValidation
from npu_graph_runtime.failures.tensor_dump import DumpedTensor, TensorDump

__all__ = [
    "ERROR_CODES",
    "CaptureFinding",
    "CaptureGuard",
    "DifferenceKind",
    "DumpedTensor",
    "ErrorCode",
    "FindingKind",
    "FirstDifference",
    "ShadowValidation",
    "Side",
    "TensorDump",
    "UncapturableWork",
    "diagnose",
    "find_error_code",
    "find_first_difference",
    "find_uncapturable",
]
