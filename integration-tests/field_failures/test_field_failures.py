"""Each reported failure is named, by layer, operator, stream and rank, well before a timeout."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from field_failures import (
    disagreeing_ranks,
    failing_kernels,
    failing_updates,
    refused_captures,
    stale_values,
    wrong_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from field_failures.field_failure import FieldFailure
    from npu_graph_runtime import NpuDevice

FAILURES = (
    *refused_captures.FAILURES,
    *failing_kernels.FAILURES,
    *failing_updates.FAILURES,
    *stale_values.FAILURES,
    *disagreeing_ranks.FAILURES,
    *wrong_numbers.FAILURES,
)
# Timeouts of the device are minutes; a loaded machine may take seconds.
LONGEST_SECONDS = 20.0


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_failure_is_named_in_time(failure: FieldFailure, device: NpuDevice) -> None:
    with failure.arrange(device) as fails:
        started = time.perf_counter()
        diagnosis = str(fails())
        seconds = time.perf_counter() - started

    for name in failure.names:
        assert name in diagnosis
    assert seconds < LONGEST_SECONDS, diagnosis


def test_ranks_that_replay_different_buckets_all_get_the_error(
    run_ranks: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Reported in https://github.com/vllm-project/vllm/issues/25906 and vllm-ascend's 3413."""
    results = run_ranks("waiting_rank.py", tmp_path / "store")

    for rank, result in enumerate(results):
        diagnosis, seconds = result["other_buckets"]
        for name in ("rank 0: HcclAllReduce of 16", "rank 1: HcclAllReduce of 32", "stream"):
            assert name in diagnosis
        assert f"'decode' on rank {rank}" in diagnosis
        assert seconds < LONGEST_SECONDS
    diagnosis, seconds = results[0]["absent_rank"]
    for name in ("segment 2 (layers.1.down_proj)", "hung", "HcclAllReduce", "rank 1"):
        assert name in diagnosis
    assert seconds < LONGEST_SECONDS
