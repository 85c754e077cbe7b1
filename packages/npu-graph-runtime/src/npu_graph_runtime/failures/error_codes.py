"""The table of known device failures: code, error class, meaning and remedy.

Codes and meanings: ``acl/error_codes/rt_error_codes.h`` of CANN, a file of the torch_npu wheel.
Remedies: torch_npu's own checks, the CANN documents, and failures that users of vLLM-Ascend and
SGLang reported and solved.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_graph_runtime import errors

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
    error: type[errors.DeviceError]
    meaning: str
    remedy: str


# Remedies of several codes, by the names that the table gives them.
_REMEDIES = """
move_synchronisation: move host synchronisation, .item(), blocking copies and data-dependent \
shapes out of the captured callable, make the operator a splitting op, or mark the function that \
needs it by runs_eagerly and capture in RunMode.BREAKABLE
fewer_streams: a captured graph uses at least one stream for each piece and the device has about \
2048 (fewer where it is partitioned): use fewer capture sizes, capture FULL instead of PIECEWISE, \
or release unused graphs
less_memory: use fewer or smaller capture sizes, let all graphs share one pool and capture the \
largest first, or leave more memory free beside the KV cache
task_group_order: open one task group at a time on the capturing stream, close it on the same \
stream, and let one update lane per device launch all task updates, never two threads or streams \
at once
join_streams: end the capture on the stream and thread that began it, after that stream has \
waited for an event of every other stream used inside
read_device_log: look in the device log (plog) for the operator that failed first
keep_memory: check that no tensor the graph reads or writes was freed after capture (workspaces \
and outputs included), that indices and lengths are in range, and run the step in RunMode.EAGER \
to find the operator; the device accepts no more work from this process, so restart it
event_never_recorded: check that every external event the graph waits for is recorded once for \
each replay, after the previous replay has passed its wait, and that ranks launch their \
collectives in one order
restart: check the device with npu-smi; the process must be restarted
same_context: use a graph and its streams on the device and in the process that captured it
timed_events: create both events with enable_timing=True, and record the start before the end
writable: let the process write to the folders of its log, its dumps and its profiles
subscribe: subscribe one thread to the stream, once, before you add a callback to it
versions: install matching versions of torch_npu, CANN, its kernels and the driver
no_overflow: look for inf and NaN: run the step in RunMode.EAGER and check each layer; bfloat16 \
has a larger range than float16
not_done: wait for the stream or the event before its result is used
living_ranks: check that the processes of all ranks are alive and launch their collectives in one \
order, and check the links with npu-smi
no_profiling: switch profiling and debugging off
quiet: run no graph, and let no other thread use the device, in the meantime
visible: count devices from 0 among those that ASCEND_RT_VISIBLE_DEVICES names
permission: map the device into the container, or add the user to the driver's group
once: initialise CANN once a process: import torch_npu before other libraries of CANN
registered: register host memory once, and before it is copied from
own_memory: copy between tensors with memory of their own, not between views at odd offsets
"""

# ``<code> <error class without Error>: <meaning>; <remedy>``. What graph execution rarely meets
# comes last.
_CODES = """
107000 InvalidArgument: invalid parameter; {read_device_log}
107002 CaptureState: no current context; select the device on this thread first
107003 InvalidArgument: stream of another context; use streams of one device
107017 TaskGroup: invalid handle; {task_group_order}
107019 DeviceTimeout: waiting timed out; {event_never_recorded}
107020 DeviceTimeout: a task timed out; {event_never_recorded}
107022 Hardware: the device is aborting its tasks; {restart}
107023 Hardware: the stream is aborting; {restart}
107024 CaptureState: a captured stream depends on uncaptured work; {join_streams}
107025 CaptureState: a stream was not joined before the capture end; {join_streams}
107026 CaptureState: the graph is being captured; end its capture first
107027 IllegalWhileCapturing: the stream is capturing; {move_synchronisation}
107028 IllegalWhileCapturing: the event is captured; {move_synchronisation}
107029 CaptureState: the stream is not capturing; {join_streams}
107030 IllegalWhileCapturing: the operation is not supported while capturing; {move_synchronisation}
107031 IllegalWhileCapturing: implicit dependency on the default stream; \
    launch nothing on the default stream while capturing
107032 CaptureState: dependent streams cannot begin to capture; {join_streams}
107033 TaskGroup: task group or capture in the wrong state; {task_group_order}
107034 TaskGroup: the task group was interrupted; {task_group_order}
107036 CaptureState: the capture began on another stream; {join_streams}
107037 CaptureState: the graph is still running; \
    wait for its last replay before releasing or changing it
107038 CaptureState: the capture began on another thread; {join_streams}
107040 TaskGroup: the task update failed; {task_group_order}
107041 IllegalWhileCapturing: an asynchronous operation became a blocking one while capturing; \
    copy from pinned host memory, outside the captured callable
107046 CaptureState: a nested graph is capturing; captures do not nest
207000 FeatureNotSupported: feature not supported; update driver, HDK and CANN
207001 OutOfDeviceMemory: out of device memory; {less_memory}
207004 Hardware: no device; {restart}
207005 OutOfDeviceResources: a resource cannot be allocated; {fewer_streams}
207007 OutOfDeviceResources: no event left; make fewer events and reuse them
207008 OutOfDeviceResources: no stream left; {fewer_streams}
207009 OutOfDeviceResources: no notify left; {fewer_streams}
207010 OutOfDeviceResources: no model left; {fewer_streams}
207012 OutOfDeviceResources: over a limit of the device; {fewer_streams}
207018 OutOfDeviceMemory: out of device memory; {less_memory}
207019 TaskGroup: the operator cannot be updated; \
    only operators with an updatable kernel belong in a task group
207020 DeviceTimeout: the driver timed out; {event_never_recorded}
507000 Kernel: internal error of the runtime, often too many graphs or streams; \
    {fewer_streams}; otherwise {read_device_log}
507001 Hardware: internal error of the task scheduler; {restart}
507002 OutOfDeviceResources: the stream is full of tasks; {fewer_streams}
507010 Hardware: the task scheduler does not answer; {restart}
507011 Kernel: the graph failed while it ran; {keep_memory}
507014 DeviceTimeout: a kernel timed out; {event_never_recorded}
507015 Kernel: a kernel raised an exception; {keep_memory}
507017 DeviceTimeout: an AI CPU kernel timed out; {event_never_recorded}
507018 Kernel: an AI CPU kernel raised an exception; {keep_memory}
507034 DeviceTimeout: a vector kernel timed out; {event_never_recorded}
507035 Kernel: a vector kernel raised an exception; {keep_memory}
507046 DeviceTimeout: synchronising a stream timed out; {event_never_recorded}
507047 DeviceTimeout: synchronising an event timed out; {event_never_recorded}
507048 DeviceTimeout: a task timed out; {event_never_recorded}
507053 Hardware: device memory error; {restart}
507054 Hardware: uncorrectable error of the device memory; {restart}
507056 Hardware: link error; {restart}
507057 Hardware: a remote device failed; {restart}
507903 CaptureState: the capture was invalidated; \
    an earlier call inside it was illegal: {move_synchronisation}
107001 InvalidArgument: no device of this number; {visible}
107004 CaptureState: the graph is of another context; {same_context}
107005 CaptureState: the stream is none of the graph's; {same_context}
107006 InvalidArgument: the event has no time stamp; {timed_events}
107007 InvalidArgument: the end event lies before the start; {timed_events}
107008 InvalidArgument: a memory address is not aligned; {own_memory}
107009 Device: a file cannot be opened; {writable}
107010 Device: a file cannot be written; {writable}
107011 Device: subscribing a stream failed; {subscribe}
107012 Device: subscribing a thread failed; {subscribe}
107013 InvalidArgument: no group is set; {versions}
107014 InvalidArgument: the group was not made; {versions}
107015 Device: no thread serves callbacks of the stream; {subscribe}
107016 InvalidArgument: memory of the wrong type; {versions}
107018 InvalidArgument: an allocation of an unknown type; {versions}
107021 InvalidArgument: a system option was not set; {versions}
107035 Hardware: the device is stopping its tasks; {restart}
107039 InvalidArgument: an array for results is too short; {versions}
107042 FeatureNotSupported: a symbol was not found; {versions}
107043 FeatureNotSupported: a symbol of the device is invalid; {versions}
107044 FeatureNotSupported: a function of the device is invalid; {versions}
107045 FeatureNotSupported: the stream does not allow this; {versions}
207002 Device: memory cannot be freed; {keep_memory}
207003 Kernel: overflow in a cube kernel; {no_overflow}
207006 Device: no permission; {permission}
207011 OutOfDeviceResources: no queue of descriptors left; {fewer_streams}
207013 Device: a queue is empty; {read_device_log}
207014 OutOfDeviceResources: a queue is full; {fewer_streams}
207015 Device: initialised twice; {once}
207016 Kernel: overflow in a vector kernel; {no_overflow}
207017 Kernel: overflow in a kernel; {no_overflow}
507003 Device: the stream has no task; {read_device_log}
507004 Device: the stream is not done; {not_done}
507005 Device: the end of a sequence; {read_device_log}
507006 Device: the event is not done; {not_done}
507007 Device: a context cannot be released; {read_device_log}
507008 FeatureNotSupported: kernels of another chip; {versions}
507009 FeatureNotSupported: a task of an unknown type; {versions}
507012 DeviceTimeout: the device did not report in time; {restart}
507013 Hardware: a copy of the system failed; {restart}
507016 Kernel: a cube kernel trapped; {keep_memory}
507019 Kernel: an AI CPU did not answer to a dump; {read_device_log}
507020 Kernel: an AI CPU did not answer to a graph; {read_device_log}
507021 Device: profiling failed; {no_profiling}
507022 Hardware: processes cannot reach each other; {living_ranks}
507023 Kernel: the graph was stopped; {read_device_log}
507024 FeatureNotSupported: a kernel is being removed; {versions}
507025 Device: a ring buffer is not ready; {read_device_log}
507026 Device: a ring buffer has no data; {read_device_log}
507027 FeatureNotSupported: a kernel was not found; {versions}
507028 FeatureNotSupported: a kernel is there twice; {versions}
507029 Device: debugging cannot begin; {no_profiling}
507030 Device: debugging cannot end; {no_profiling}
507031 InvalidArgument: a label of another context; {same_context}
507032 OutOfDeviceResources: too many kernels; {read_device_log}
507033 Hardware: the device cannot be set up; {restart}
507036 Kernel: a vector kernel trapped; {keep_memory}
507037 Device: a queue of descriptors failed; {read_device_log}
507038 InvalidArgument: the mode of the dies cannot be changed; {versions}
507039 InvalidArgument: no die can be chosen in this mode; {versions}
507040 InvalidArgument: no die of this number; {versions}
507041 InvalidArgument: the mode of the dies is not set; {versions}
507042 Kernel: a cube kernel read outside; \
    a kernel accessed memory outside its tensors: {keep_memory}
507043 Kernel: a cube kernel wrote outside; \
    a kernel accessed memory outside its tensors: {keep_memory}
507044 Kernel: a vector kernel read outside; \
    a kernel accessed memory outside its tensors: {keep_memory}
507045 Kernel: a vector kernel wrote outside; \
    a kernel accessed memory outside its tensors: {keep_memory}
507049 Kernel: a fused task raised an exception; {keep_memory}
507050 Kernel: a fused task trapped; {keep_memory}
507051 Hardware: the device cannot be reached; {restart}
507052 Hardware: a copy to the device failed; {restart}
507055 Hardware: device memory may have failed; {restart}
507899 Hardware: internal error of the driver; {restart}
507900 Kernel: internal error of an AI CPU; {read_device_log}
507901 Hardware: the device is disconnected; {restart}
507902 Kernel: an AI CPU cannot load a kernel; {versions}
507904 Hardware: a collective failed again and again; {living_ranks}
507905 Device: locking for a snapshot took too long; {quiet}
507906 Device: locking for a snapshot failed; {quiet}
507907 Device: unlocking after a snapshot failed; {quiet}
507908 Device: a snapshot failed; {quiet}
507909 Device: coming back from a snapshot failed; {quiet}
507910 InvalidArgument: host memory is registered already; {registered}
507911 InvalidArgument: host memory is not registered; {registered}
507912 Device: a callback of a snapshot failed; {quiet}
507913 Device: a callback of a snapshot cannot be registered; {quiet}
507914 Hardware: a port of the device failed; {restart}
507915 DeviceTimeout: a collective timed out; {living_ranks}
507916 Kernel: a collective raised an exception; {living_ranks}
"""


def _remedies() -> dict[str, str]:
    pairs = (line.partition(": ") for line in _REMEDIES.strip().splitlines())
    return {name: text for name, _, text in pairs}


def _table() -> Mapping[int, ErrorCode]:
    rows: dict[int, ErrorCode] = {}
    remedies = _remedies()
    for line in _CODES.strip().splitlines():
        head, _, text = line.partition(": ")
        code, _, error = head.partition(" ")
        meaning, _, remedy = text.partition("; ")
        rows[int(code)] = ErrorCode(
            code=int(code),
            error=getattr(errors, f"{error}Error"),
            meaning=meaning,
            remedy=remedy.strip().format_map(remedies),
        )
    return MappingProxyType(rows)


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
        error=errors.UnknownDeviceError,
        meaning="a failure this version has no explanation for",
        remedy=_remedies()["read_device_log"],
    )
