"""Faults of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.fault import answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

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
}
