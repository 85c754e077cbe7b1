"""Faults of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.fault import answer, nothing_done

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

_BEGIN, _END = "aclmdlRICaptureTaskGrpBegin", "aclmdlRICaptureTaskGrpEnd"
_UPDATE, _UPDATED = "aclmdlRICaptureTaskUpdateBegin", "aclmdlRICaptureTaskUpdateEnd"
_REPLAY, _WAIT = "aclmdlRIExecuteAsync", "aclrtStreamWaitEvent"

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
