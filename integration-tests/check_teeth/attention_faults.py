"""Faults of updates of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.contract_faults import NO_UPDATE
from check_teeth.fault import setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

ATTENTION: Mapping[str, Sequence[Fault]] = {
    "attention.operators": [NO_UPDATE],
    "attention.kernels": [setting("CANN_SIM_FAULTS", "task_update:20")],
    "attention.native": [setting("CANN_SIM_FAULTS", "task_update:20")],
}
