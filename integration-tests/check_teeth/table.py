"""The faults of each probe, by its id: one or more, each of which changes its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.attention_faults import ATTENTION
from check_teeth.capture_faults import CAPTURE
from check_teeth.contract_faults import CONTRACT
from check_teeth.decode_faults import DECODE
from check_teeth.environment_faults import ENVIRONMENT
from check_teeth.fusions_faults import FUSIONS
from check_teeth.memory_faults import MEMORY
from check_teeth.operators_faults import OPERATORS
from check_teeth.questions_faults import QUESTIONS
from check_teeth.runtime_faults import RUNTIME
from check_teeth.times_faults import TIMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

TEETH: Mapping[str, Sequence[Fault]] = {
    **ENVIRONMENT,
    **CAPTURE,
    **MEMORY,
    **ATTENTION,
    **OPERATORS,
    **FUSIONS,
    **RUNTIME,
    **DECODE,
    **TIMES,
    **QUESTIONS,
    **CONTRACT,
}
