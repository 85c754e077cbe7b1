"""Ranks with batches of their own that replay the same bucket at each step, a process each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RunRanks = Callable[..., list[dict[str, Any]]]
STEPS = 24


def test_ranks_with_other_batches_run_the_same_graph_until_one_fails(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    first, failed = run_ranks("data_parallel_rank.py", tmp_path / "store", STEPS - 1)

    assert first["modes"] == failed["modes"]
    assert len(first["modes"]) == STEPS - 1
    assert {"full", "eager"} <= set(first["modes"])
    for result in (first, failed):
        assert result["equal"]
        assert result["replayed"] == first["replayed"] > STEPS / 3
    assert failed["error"] == ""
    assert f"agreeing on step {STEPS - 1}: rank 1 gave up" in first["error"]
