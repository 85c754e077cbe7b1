"""Faults of decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.contract_faults import RUNS
from check_teeth.fault import setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

DECODE: Mapping[str, Sequence[Fault]] = {
    "decode.full": [setting("CANN_SIM_FAULTS", "task_update:3")],
    "decode.piecewise": [RUNS],
    "decode.full-decode-and-piecewise": [setting("CANN_SIM_FAULTS", "task_update:3")],
    "decode.breakable": [RUNS],
    "decode.plain-piecewise": [RUNS],
    "decode.plain-breakable": [RUNS],
    "decode.measured": [setting("CANN_SIM_FAULTS", "task_update:3")],
}
