"""The faults of each probe, by its id: one or more, each of which changes its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.capture_faults import CAPTURE
from check_teeth.contract_faults import CONTRACT
from check_teeth.environment_faults import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

TEETH: Mapping[str, Sequence[Fault]] = {**ENVIRONMENT, **CAPTURE, **CONTRACT}
