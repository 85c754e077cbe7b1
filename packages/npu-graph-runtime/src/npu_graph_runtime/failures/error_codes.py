"""The table of known device failures: code, error class, meaning and remedy.

Codes and meanings: ``acl/error_codes/rt_error_codes.h`` of CANN, a file of the torch_npu wheel.
Remedies: torch_npu's own checks, the CANN documents, and failures that users of vLLM-Ascend and
SGLang reported and solved.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_graph_runtime.errors import (
    CaptureStateError,
    DeviceError,
    DeviceTimeoutError,
    FeatureNotSupportedError,
    HardwareError,
    IllegalWhileCapturingError,
    InvalidArgumentError,
    KernelError,
    OutOfDeviceMemoryError,
    OutOfDeviceResourcesError,
    TaskGroupError,
    UnknownDeviceError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ErrorCode:
    """One known failure of the device.

    Attributes:
        code: the runtime error code.
        error: class of the error that reports it.
        meaning: what the device says with it.
        remedy: what to do.
    """

    code: int
    error: type[DeviceError]
    meaning: str
    remedy: str


_MOVE_SYNCHRONISATION = (
    "move host synchronisation, .item(), blocking copies and data-dependent shapes out of the "
    "captured callable, make the operator a splitting op, or mark the function that needs it by "
    "runs_eagerly and capture in RunMode.BREAKABLE"
)
_FEWER_STREAMS = (
    "a captured graph holds at least one stream for each piece and the device has about 2048 "
    "(fewer where it is partitioned): use fewer capture sizes, capture FULL instead of PIECEWISE, "
    "or release graphs that are not used"
)
_LESS_MEMORY = (
    "use fewer or smaller capture sizes, let all graphs share one pool and capture the largest "
    "first, or leave more memory free beside the KV cache"
)
_TASK_GROUP_ORDER = (
    "open one task group at a time on the capturing stream, close it on the same stream, and let "
    "one update lane a device issue all task updates, never two threads or streams at once"
)
_JOIN_STREAMS = (
    "end the capture on the stream and thread that began it, after that stream has waited for an "
    "event of every other stream used inside"
)
_READ_DEVICE_LOG = "look in the device log (plog) for the operator that failed first"
_KEEP_MEMORY = (
    "check that no tensor the graph reads or writes was freed after capture (workspaces and "
    "outputs included), that indices and lengths are in range, and run the step in RunMode.EAGER "
    "to find the operator"
)
_EVENT_NEVER_RECORDED = (
    "check that every external event the graph waits for is recorded once for each replay, after "
    "the previous replay has passed its wait, and that ranks issue their collectives in one order"
)
_RESTART = "check the device with npu-smi; the process must be restarted"


def _table() -> Mapping[int, ErrorCode]:
    rows: list[tuple[int, type[DeviceError], str, str]] = [
        (107000, InvalidArgumentError, "invalid parameter", _READ_DEVICE_LOG),
        (107002, CaptureStateError, "no current context", "select the device on this thread first"),
        (107003, InvalidArgumentError, "stream of another context", "use streams of one device"),
        (107017, TaskGroupError, "invalid handle", _TASK_GROUP_ORDER),
        (107019, DeviceTimeoutError, "waiting timed out", _EVENT_NEVER_RECORDED),
        (107020, DeviceTimeoutError, "a task timed out", _EVENT_NEVER_RECORDED),
        (107022, HardwareError, "the device is aborting its tasks", _RESTART),
        (107023, HardwareError, "the stream is aborting", _RESTART),
        (107024, CaptureStateError, "a captured stream depends on uncaptured work", _JOIN_STREAMS),
        (
            107025,
            CaptureStateError,
            "a stream was not joined before the capture end",
            _JOIN_STREAMS,
        ),
        (107026, CaptureStateError, "the graph is being captured", "end its capture first"),
        (107027, IllegalWhileCapturingError, "the stream is capturing", _MOVE_SYNCHRONISATION),
        (107028, IllegalWhileCapturingError, "the event is captured", _MOVE_SYNCHRONISATION),
        (107029, CaptureStateError, "the stream is not capturing", _JOIN_STREAMS),
        (
            107030,
            IllegalWhileCapturingError,
            "the operation is not supported while capturing",
            _MOVE_SYNCHRONISATION,
        ),
        (
            107031,
            IllegalWhileCapturingError,
            "implicit dependency on the default stream",
            "issue nothing on the default stream while capturing",
        ),
        (107032, CaptureStateError, "dependent streams cannot begin to capture", _JOIN_STREAMS),
        (107033, TaskGroupError, "task group or capture in the wrong state", _TASK_GROUP_ORDER),
        (107034, TaskGroupError, "the task group was interrupted", _TASK_GROUP_ORDER),
        (107036, CaptureStateError, "the capture began on another stream", _JOIN_STREAMS),
        (
            107037,
            CaptureStateError,
            "the graph is still running",
            "wait for its last replay before releasing or changing it",
        ),
        (107038, CaptureStateError, "the capture began on another thread", _JOIN_STREAMS),
        (107040, TaskGroupError, "the task update failed", _TASK_GROUP_ORDER),
        (
            107041,
            IllegalWhileCapturingError,
            "an asynchronous operation became a blocking one while capturing",
            "copy from pinned host memory, outside the captured callable",
        ),
        (107046, CaptureStateError, "a nested graph is capturing", "captures do not nest"),
        (207000, FeatureNotSupportedError, "feature not supported", "update driver, HDK and CANN"),
        (207001, OutOfDeviceMemoryError, "out of device memory", _LESS_MEMORY),
        (207004, HardwareError, "no device", _RESTART),
        (207005, OutOfDeviceResourcesError, "a resource cannot be allocated", _FEWER_STREAMS),
        (207007, OutOfDeviceResourcesError, "no event left", "make fewer events and reuse them"),
        (207008, OutOfDeviceResourcesError, "no stream left", _FEWER_STREAMS),
        (207009, OutOfDeviceResourcesError, "no notify left", _FEWER_STREAMS),
        (207010, OutOfDeviceResourcesError, "no model left", _FEWER_STREAMS),
        (207012, OutOfDeviceResourcesError, "over a limit of the device", _FEWER_STREAMS),
        (207018, OutOfDeviceMemoryError, "out of device memory", _LESS_MEMORY),
        (
            207019,
            TaskGroupError,
            "the operator cannot be updated",
            "only operators with an updatable kernel belong in a task group",
        ),
        (207020, DeviceTimeoutError, "the driver timed out", _EVENT_NEVER_RECORDED),
        (
            507000,
            KernelError,
            "internal error of the runtime, often too many graphs or streams",
            f"{_FEWER_STREAMS}; otherwise {_READ_DEVICE_LOG}",
        ),
        (507001, HardwareError, "internal error of the task scheduler", _RESTART),
        (507002, OutOfDeviceResourcesError, "the stream is full of tasks", _FEWER_STREAMS),
        (507010, HardwareError, "the task scheduler does not answer", _RESTART),
        (507011, KernelError, "the graph failed while it ran", _KEEP_MEMORY),
        (507014, DeviceTimeoutError, "a kernel timed out", _EVENT_NEVER_RECORDED),
        (507015, KernelError, "a kernel raised an exception", _KEEP_MEMORY),
        (507017, DeviceTimeoutError, "an AI CPU kernel timed out", _EVENT_NEVER_RECORDED),
        (507018, KernelError, "an AI CPU kernel raised an exception", _KEEP_MEMORY),
        (507034, DeviceTimeoutError, "a vector kernel timed out", _EVENT_NEVER_RECORDED),
        (507035, KernelError, "a vector kernel raised an exception", _KEEP_MEMORY),
        (507046, DeviceTimeoutError, "synchronising a stream timed out", _EVENT_NEVER_RECORDED),
        (507047, DeviceTimeoutError, "synchronising an event timed out", _EVENT_NEVER_RECORDED),
        (507048, DeviceTimeoutError, "a task timed out", _EVENT_NEVER_RECORDED),
        (507053, HardwareError, "device memory error", _RESTART),
        (507054, HardwareError, "uncorrectable error of the device memory", _RESTART),
        (507056, HardwareError, "link error", _RESTART),
        (507057, HardwareError, "a remote device failed", _RESTART),
        (
            507903,
            CaptureStateError,
            "the capture was invalidated",
            f"an earlier call inside it was illegal: {_MOVE_SYNCHRONISATION}",
        ),
    ]
    return MappingProxyType(
        {
            code: ErrorCode(code=code, error=error, meaning=meaning, remedy=remedy)
            for code, error, meaning, remedy in rows
        }
    )


ERROR_CODES: Mapping[int, ErrorCode] = _table()
"""Known failures by runtime error code; read-only."""

MESSAGES: tuple[tuple[str, int], ...] = (
    ("out of memory", 207001),
    ("EL0004", 207001),
    ("EL0009", 207008),
    ("alloc sq cq fail", 207008),
    ("on a non-default stream", 107031),
    ("Cannot run aclop operators", 107030),
    ("TASK_QUEUE_ENABLE = 2", 207000),
    ("pin_memory_expandable_segments", 207000),
    ("already owns a captured graph", 107026),
    ("without a preceding successful capture", 107029),
    ("Capture must end on the same stream", 107036),
    ("called before capture_begin", 107029),
)
"""Texts of failures that torch_npu and CANN report without a runtime error code, and their codes.

Sources: torch_npu 2.13 (``NPUGraph.cpp``, ``NPUCachingAllocator.cpp``, ``NPUGraphsUtils.h``), the
``EL`` codes of CANN, and vLLM-Ascend's reading of the stream texts.
"""


def unknown(code: int) -> ErrorCode:
    """Return the row for a code that the table does not have.

    Args:
        code: the runtime error code.
    """
    return ErrorCode(
        code=code,
        error=UnknownDeviceError,
        meaning="a failure this version has no explanation for",
        remedy=_READ_DEVICE_LOG,
    )
