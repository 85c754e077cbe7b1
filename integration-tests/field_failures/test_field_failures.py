"""Each reported failure is named, by layer, operator, stream and rank, within two seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from field_failures import failing_kernels, refused_captures, stale_values, wrong_numbers

if TYPE_CHECKING:
    from field_failures.field_failure import FieldFailure
    from npu_graph_runtime import NpuDevice

FAILURES = (
    *refused_captures.FAILURES,
    *failing_kernels.FAILURES,
    *stale_values.FAILURES,
    *wrong_numbers.FAILURES,
)
LONGEST_SECONDS = 2.0


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_failure_is_named_in_time(failure: FieldFailure, device: NpuDevice) -> None:
    with failure.arrange(device) as fails:
        started = time.perf_counter()
        diagnosis = str(fails())
        seconds = time.perf_counter() - started

    for name in failure.names:
        assert name in diagnosis
    assert seconds < LONGEST_SECONDS, diagnosis
