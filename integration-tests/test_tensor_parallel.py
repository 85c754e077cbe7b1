"""A tensor-parallel layer captured and replayed on two ranks, a process each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_captured_layer_of_two_ranks_replays_what_it_computes_eagerly(
    run_ranks: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    first, second = run_ranks("tensor_parallel_rank.py", tmp_path / "store")
    for result in (first, second):
        assert result["equal"]
        assert result["replayed"] == 6
        assert result["error"] < 1e-5
        # One for each step, eagerly and replayed, and those of the warm-up.
        assert result["collectives"] >= 12
    assert first["outputs"] == second["outputs"]
    # Each step that is measured holds a collective: the ranks ran the same ones, and chose alike.
    assert first["choice"] == second["choice"]
    assert "a step, " in first["choice"]
