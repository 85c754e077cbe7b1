"""Ranks with batches of their own that replay the same bucket at each step, a process each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RunRanks = Callable[..., list[dict[str, Any]]]
STEPS = 24


def test_ranks_with_other_batches_run_the_same_graph(run_ranks: RunRanks, tmp_path: Path) -> None:
    results = run_ranks("data_parallel_rank.py", tmp_path / "store", STEPS)

    first = results[0]
    assert [result["modes"] for result in results] == [first["modes"]] * 2
    assert len(first["modes"]) == STEPS
    assert {"full", "eager"} <= set(first["modes"])
    for result in results:
        assert result["equal"]
        assert result["replayed"] == first["replayed"] > STEPS / 3


def test_rank_that_fails_ends_the_other_with_its_name(run_ranks: RunRanks, tmp_path: Path) -> None:
    first, failed = run_ranks("data_parallel_rank.py", tmp_path / "store", 5)

    assert failed["error"] == ""
    assert len(first["modes"]) == len(failed["modes"]) == 5
    assert "agreeing on step 5: rank 1 gave up" in first["error"]
