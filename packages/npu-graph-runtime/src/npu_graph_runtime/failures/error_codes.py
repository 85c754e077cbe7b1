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
        error: error class that reports it.
        meaning: meaning according to the device.
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
    "a captured graph uses at least one stream for each piece and the device has about 2048 "
    "(fewer where it is partitioned): use fewer capture sizes, capture FULL instead of PIECEWISE, "
    "or release unused graphs"
)
_LESS_MEMORY = (
    "use fewer or smaller capture sizes, let all graphs share one pool and capture the largest "
    "first, or leave more memory free beside the KV cache"
)
_TASK_GROUP_ORDER = (
    "open one task group at a time on the capturing stream, close it on the same stream, and let "
    "one update lane per device launch all task updates, never two threads or streams at once"
)
_JOIN_STREAMS = (
    "end the capture on the stream and thread that began it, after that stream has waited for an "
    "event of every other stream used inside"
)
_READ_DEVICE_LOG = "look in the device log (plog) for the operator that failed first"
_KEEP_MEMORY = (
    "check that no tensor the graph reads or writes was freed after capture (workspaces and "
    "outputs included), that indices and lengths are in range, and run the step in RunMode.EAGER "
    "to find the operator; the device accepts no more work from this process, so restart it"
)
_EVENT_NEVER_RECORDED = (
    "check that every external event the graph waits for is recorded once for each replay, after "
    "the previous replay has passed its wait, and that ranks launch their collectives in one order"
)
_RESTART = "check the device with npu-smi; the process must be restarted"
_SAME_CONTEXT = "use a graph and its streams on the device and in the process that captured it"
_TIMED_EVENTS = "create both events with enable_timing=True, and record the start before the end"
_WRITABLE = "let the process write to the folders of its log, its dumps and its profiles"
_SUBSCRIBE = "subscribe one thread to the stream, once, before you add a callback to it"
_VERSIONS = "install matching versions of torch_npu, CANN, its kernels and the driver"
_NO_OVERFLOW = (
    "look for inf and NaN: run the step in RunMode.EAGER and check each layer; bfloat16 has "
    "a larger range than float16"
)
_NOT_DONE = "wait for the stream or the event before its result is used"
_LIVING_RANKS = (
    "check that the processes of all ranks are alive and launch their collectives in one order, "
    "and check the links with npu-smi"
)
_NO_PROFILING = "switch profiling and debugging off"
_QUIET = "run no graph, and let no other thread use the device, in the meantime"
_OUT_OF_RANGE = f"a kernel accessed memory outside its tensors: {_KEEP_MEMORY}"


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
            "launch nothing on the default stream while capturing",
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
        *_rare_rows(),
    ]
    return MappingProxyType(
        {
            code: ErrorCode(code=code, error=error, meaning=meaning, remedy=remedy)
            for code, error, meaning, remedy in rows
        }
    )


def _rare_rows() -> list[tuple[int, type[DeviceError], str, str]]:
    """Return codes that graph execution rarely meets, which complete the table."""
    visible = "count devices from 0 among those that ASCEND_RT_VISIBLE_DEVICES names"
    permission = "map the device into the container, or add the user to the driver's group"
    once = "initialise CANN once a process: import torch_npu before other libraries of CANN"
    registered = "register host memory once, and before it is copied from"
    own_memory = "copy between tensors with memory of their own, not between views at odd offsets"
    return [
        (107001, InvalidArgumentError, "no device of this number", visible),
        (107004, CaptureStateError, "the graph is of another context", _SAME_CONTEXT),
        (107005, CaptureStateError, "the stream is none of the graph's", _SAME_CONTEXT),
        (107006, InvalidArgumentError, "the event has no time stamp", _TIMED_EVENTS),
        (107007, InvalidArgumentError, "the end event lies before the start", _TIMED_EVENTS),
        (107008, InvalidArgumentError, "a memory address is not aligned", own_memory),
        (107009, DeviceError, "a file cannot be opened", _WRITABLE),
        (107010, DeviceError, "a file cannot be written", _WRITABLE),
        (107011, DeviceError, "subscribing a stream failed", _SUBSCRIBE),
        (107012, DeviceError, "subscribing a thread failed", _SUBSCRIBE),
        (107013, InvalidArgumentError, "no group is set", _VERSIONS),
        (107014, InvalidArgumentError, "the group was not made", _VERSIONS),
        (107015, DeviceError, "no thread serves callbacks of the stream", _SUBSCRIBE),
        (107016, InvalidArgumentError, "memory of the wrong type", _VERSIONS),
        (107018, InvalidArgumentError, "an allocation of an unknown type", _VERSIONS),
        (107021, InvalidArgumentError, "a system option was not set", _VERSIONS),
        (107035, HardwareError, "the device is stopping its tasks", _RESTART),
        (107039, InvalidArgumentError, "an array for results is too short", _VERSIONS),
        (107042, FeatureNotSupportedError, "a symbol was not found", _VERSIONS),
        (107043, FeatureNotSupportedError, "a symbol of the device is invalid", _VERSIONS),
        (107044, FeatureNotSupportedError, "a function of the device is invalid", _VERSIONS),
        (107045, FeatureNotSupportedError, "the stream does not allow this", _VERSIONS),
        (207002, DeviceError, "memory cannot be freed", _KEEP_MEMORY),
        (207003, KernelError, "overflow in a cube kernel", _NO_OVERFLOW),
        (207006, DeviceError, "no permission", permission),
        (207011, OutOfDeviceResourcesError, "no queue of descriptors left", _FEWER_STREAMS),
        (207013, DeviceError, "a queue is empty", _READ_DEVICE_LOG),
        (207014, OutOfDeviceResourcesError, "a queue is full", _FEWER_STREAMS),
        (207015, DeviceError, "initialised twice", once),
        (207016, KernelError, "overflow in a vector kernel", _NO_OVERFLOW),
        (207017, KernelError, "overflow in a kernel", _NO_OVERFLOW),
        (507003, DeviceError, "the stream has no task", _READ_DEVICE_LOG),
        (507004, DeviceError, "the stream is not done", _NOT_DONE),
        (507005, DeviceError, "the end of a sequence", _READ_DEVICE_LOG),
        (507006, DeviceError, "the event is not done", _NOT_DONE),
        (507007, DeviceError, "a context cannot be released", _READ_DEVICE_LOG),
        (507008, FeatureNotSupportedError, "kernels of another chip", _VERSIONS),
        (507009, FeatureNotSupportedError, "a task of an unknown type", _VERSIONS),
        (507012, DeviceTimeoutError, "the device did not report in time", _RESTART),
        (507013, HardwareError, "a copy of the system failed", _RESTART),
        (507016, KernelError, "a cube kernel trapped", _KEEP_MEMORY),
        (507019, KernelError, "an AI CPU did not answer to a dump", _READ_DEVICE_LOG),
        (507020, KernelError, "an AI CPU did not answer to a graph", _READ_DEVICE_LOG),
        (507021, DeviceError, "profiling failed", _NO_PROFILING),
        (507022, HardwareError, "processes cannot reach each other", _LIVING_RANKS),
        (507023, KernelError, "the graph was stopped", _READ_DEVICE_LOG),
        (507024, FeatureNotSupportedError, "a kernel is being removed", _VERSIONS),
        (507025, DeviceError, "a ring buffer is not ready", _READ_DEVICE_LOG),
        (507026, DeviceError, "a ring buffer has no data", _READ_DEVICE_LOG),
        (507027, FeatureNotSupportedError, "a kernel was not found", _VERSIONS),
        (507028, FeatureNotSupportedError, "a kernel is there twice", _VERSIONS),
        (507029, DeviceError, "debugging cannot begin", _NO_PROFILING),
        (507030, DeviceError, "debugging cannot end", _NO_PROFILING),
        (507031, InvalidArgumentError, "a label of another context", _SAME_CONTEXT),
        (507032, OutOfDeviceResourcesError, "too many kernels", _READ_DEVICE_LOG),
        (507033, HardwareError, "the device cannot be set up", _RESTART),
        (507036, KernelError, "a vector kernel trapped", _KEEP_MEMORY),
        (507037, DeviceError, "a queue of descriptors failed", _READ_DEVICE_LOG),
        (507038, InvalidArgumentError, "the mode of the dies cannot be changed", _VERSIONS),
        (507039, InvalidArgumentError, "no die can be chosen in this mode", _VERSIONS),
        (507040, InvalidArgumentError, "no die of this number", _VERSIONS),
        (507041, InvalidArgumentError, "the mode of the dies is not set", _VERSIONS),
        (507042, KernelError, "a cube kernel read outside", _OUT_OF_RANGE),
        (507043, KernelError, "a cube kernel wrote outside", _OUT_OF_RANGE),
        (507044, KernelError, "a vector kernel read outside", _OUT_OF_RANGE),
        (507045, KernelError, "a vector kernel wrote outside", _OUT_OF_RANGE),
        (507049, KernelError, "a fused task raised an exception", _KEEP_MEMORY),
        (507050, KernelError, "a fused task trapped", _KEEP_MEMORY),
        (507051, HardwareError, "the device cannot be reached", _RESTART),
        (507052, HardwareError, "a copy to the device failed", _RESTART),
        (507055, HardwareError, "device memory may have failed", _RESTART),
        (507899, HardwareError, "internal error of the driver", _RESTART),
        (507900, KernelError, "internal error of an AI CPU", _READ_DEVICE_LOG),
        (507901, HardwareError, "the device is disconnected", _RESTART),
        (507902, KernelError, "an AI CPU cannot load a kernel", _VERSIONS),
        (507904, HardwareError, "a collective failed again and again", _LIVING_RANKS),
        (507905, DeviceError, "locking for a snapshot took too long", _QUIET),
        (507906, DeviceError, "locking for a snapshot failed", _QUIET),
        (507907, DeviceError, "unlocking after a snapshot failed", _QUIET),
        (507908, DeviceError, "a snapshot failed", _QUIET),
        (507909, DeviceError, "coming back from a snapshot failed", _QUIET),
        (507910, InvalidArgumentError, "host memory is registered already", registered),
        (507911, InvalidArgumentError, "host memory is not registered", registered),
        (507912, DeviceError, "a callback of a snapshot failed", _QUIET),
        (507913, DeviceError, "a callback of a snapshot cannot be registered", _QUIET),
        (507914, HardwareError, "a port of the device failed", _RESTART),
        (507915, DeviceTimeoutError, "a collective timed out", _LIVING_RANKS),
        (507916, KernelError, "a collective raised an exception", _LIVING_RANKS),
    ]


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
    """Return the row for a code that the table does not have."""
    return ErrorCode(
        code=code,
        error=UnknownDeviceError,
        meaning="a failure this version has no explanation for",
        remedy=_READ_DEVICE_LOG,
    )
