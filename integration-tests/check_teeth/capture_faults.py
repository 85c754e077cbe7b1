"""Faults of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault, answer, called_with, nothing_done, setting
from npu_graph_check.cann.runtime import Cann, Handle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BEGIN, _END = "aclmdlRICaptureTaskGrpBegin", "aclmdlRICaptureTaskGrpEnd"
_UPDATE, _UPDATED = "aclmdlRICaptureTaskUpdateBegin", "aclmdlRICaptureTaskUpdateEnd"
_REPLAY, _WAIT = "aclmdlRIExecuteAsync", "aclrtStreamWaitEvent"


def _keep_memory() -> None:
    before = Cann.call

    def call(self: Cann, name: str, *arguments: Any) -> int:
        if name == _UPDATED:
            before(self, "aclrtMalloc", ctypes.byref(Handle()), 4096, 0)
        return before(self, name, *arguments)

    setattr(Cann, "call", call)  # noqa: B010 - a method is replaced on purpose


def _npu() -> Any:
    import torch

    from npu_graph_runtime import NpuDevice

    NpuDevice()  # loads torch_npu, which brings torch.npu
    return vars(torch)["npu"]


def _every_second_wait() -> None:
    npu, calls = _npu(), [0]
    before = npu.Stream.wait_stream

    def wait_stream(self: Any, other: Any) -> None:
        calls[0] += 1
        if calls[0] % 2:
            before(self, other)

    npu.Stream.wait_stream = wait_stream


def _twice() -> None:
    npu = _npu()
    before = npu.NPUGraph.replay

    def replay(self: Any) -> None:
        before(self)
        before(self)

    npu.NPUGraph.replay = replay


def _no_captures() -> None:
    _npu().graph = lambda *_, **__: contextlib.nullcontext()


CAPTURE: Mapping[str, Sequence[Fault]] = {
    "capture.default-stream": [
        answer("aclmdlRICaptureBegin", 107000, 107027),
        answer("aclmdlRICaptureBegin", 107027),
    ],
    "capture.synchronising": [
        answer("aclrtSynchronizeStream", 107027),
        answer("aclrtStreamQuery", 107027, 107028),
        answer("aclrtDestroyStream", 107027),
        answer("aclrtSynchronizeDevice", 107027),
    ],
    "capture.event-questions": [
        answer("aclrtSynchronizeEvent", 107028),
        answer("aclrtQueryEventStatus", 107028, 107027),
    ],
    "capture.blocking-copies": [
        answer("aclrtMemcpy", 107030),
        nothing_done("aclmdlRICaptureThreadExchangeMode"),
    ],
    "capture.pageable-copy": [
        answer("aclrtMemcpyAsync", 107000),
        answer("aclrtMemcpyAsync", 107041, 107030),
    ],
    "capture.default-stream-joins": [
        answer(_WAIT, 107031),
        answer("aclmdlRICaptureEnd", 507903),
    ],
    "capture.joins-by-event": [nothing_done(_WAIT)],
    "capture.other-capture": [answer(_WAIT, 107032), answer("aclmdlRICaptureEnd", 507903)],
    "capture.outside-event": [answer(_WAIT, 107024)],
    "capture.old-event": [answer("aclrtRecordEvent", 207000)],
    "capture.unjoined": [answer("aclmdlRICaptureEnd", 107025)],
    "capture.wrong-end": [
        answer("aclmdlRICaptureEnd", 107029),
        answer("aclmdlRICaptureEnd", 107036),
        answer("aclmdlRICaptureEnd", 107038),
    ],
    "capture.over-at-its-end": [answer("aclrtSynchronizeStream", 0, 107027)],
    "capture.pinned-copy-behind-a-wait": [
        Fault(
            what="every second `torch.npu.Stream.wait_stream` does nothing",
            apply=_every_second_wait,
        )
    ],
    "capture.dead-task-queue": [
        Fault(what="`torch.npu.graph` captures nothing", apply=_no_captures)
    ],
    "capture.memory-of-arguments": [nothing_done("aclmdlRIDestroy")],
    "capture.replayed-random-numbers": [
        Fault(what="`torch.npu.NPUGraph.replay` replays twice", apply=_twice)
    ],
    "capture.conditions": [
        nothing_done(_REPLAY, from_call=2),
        called_with("aclmdlRICondHandleCreate", 1, 0),
    ],
    "capture.conditions-without-child": [called_with("aclmdlRICondHandleCreate", 1, 1)],
    "capture.child-graphs": [
        answer("aclmdlRICaptureEnd", 107046),
        answer(_REPLAY, 207000),
        answer("aclmdlRIDestroy", 207000),
    ],
    "capture.graph-as-json": [nothing_done("aclmdlRIDebugJsonPrint")],
    "capture.external-event-object": [nothing_done("aclrtResetEvent")],
    "capture.event-between-processes": [
        answer("aclrtEventElapsedTime", 207000),
        answer("aclrtRecordEvent", 207000),
    ],
    "capture.destroyed-stream": [answer("aclrtSynchronizeStream", 107003)],
    "capture.update-frees-arguments": [
        Fault(what=f"`{_UPDATED}` keeps 4 KiB of the device", apply=_keep_memory)
    ],
    "capture.update-nothing-orders": [setting("CANN_SIM_UPDATE_CHECK", "off")],
    "capture.update-of-destroyed-graph": [answer(_UPDATE, 107000)],
    "capture.streams-taken": [nothing_done("aclmdlRIDestroy")],
    "capture.replay-in-order": [nothing_done(_REPLAY, from_call=2)],
    "capture.replay-on-two-streams": [nothing_done(_REPLAY, from_call=2)],
    "capture.replay-refused": [answer(_REPLAY, 107026), answer(_REPLAY, 107000)],
    "capture.destroyed-while-running": [answer("aclmdlRIDestroy", 0, 107026)],
    "capture.replayed-copy": [nothing_done(_REPLAY, from_call=2)],
    "capture.streams-run-beside": [nothing_done("aclrtValueWait")],
    "capture.unrecorded-event": [answer(_WAIT, 0, 107024), nothing_done(_WAIT)],
    "capture.flag-event": [nothing_done("aclrtResetEvent")],
    "capture.event-times": [
        answer("aclrtEventElapsedTime", 107006),
        answer("aclrtEventElapsedTime", 107007),
    ],
    "capture.limited-synchronisation": [answer("aclrtSynchronizeStreamWithTimeout", 507046)],
    "capture.external-word": [nothing_done("aclrtValueWait")],
    "capture.two-records-are-one": [nothing_done("aclrtValueWait")],
    "capture.word-of-a-graph": [nothing_done("aclrtValueWait")],
    "capture.wait-sees-a-copy": [nothing_done("aclrtMemcpyAsync")],
    "capture.update-takes-effect": [nothing_done(_UPDATE)],
    "capture.update-behind-replay": [nothing_done("aclrtValueWait")],
    "capture.update-only-kernels": [
        answer("aclrtMemsetAsync", 507009),
        answer("aclrtValueWrite", 507009),
        answer(_REPLAY, 107027),
    ],
    "capture.unpaired-groups": [
        answer(_BEGIN, 107029),
        answer(_BEGIN, 107033),
        answer(_END, 107033),
        answer("aclmdlRICaptureEnd", 107033),
    ],
    "capture.interrupted-group": [answer("aclnnInplaceAdds", 107034)],
    "capture.unpaired-updates": [
        answer(_UPDATED, 107033),
        answer(_UPDATE, 107027),
        answer(_UPDATE, 107033),
    ],
    "capture.other-kernels": [
        answer("aclnnInplaceMuls", 507000),
        answer("aclnnInplaceAdds", 507000),
        answer(_UPDATED, 507000),
    ],
}
