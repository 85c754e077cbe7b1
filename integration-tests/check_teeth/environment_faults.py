"""Faults of versions, device and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.fault import answer, answers_more, nothing_done, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

ENVIRONMENT: Mapping[str, Sequence[Fault]] = {
    "environment.versions": [
        answer("aclsysGetCANNVersion", 0, 100000),
        setting("CANN_SIM_SOC", "Ascend310P3"),
    ],
    "environment.cores": [answers_more("aclrtGetDeviceInfo", 2)],
    "environment.core-limits": [
        answer("aclrtSetDeviceResLimit", 107000),
        nothing_done("aclrtResetDeviceResLimit"),
    ],
    "environment.threads": [answer("aclrtMalloc", 107002), answer("aclrtSetDevice", 107001)],
    "environment.doctor": [setting("TASK_QUEUE_ENABLE", "2")],
}
