"""The count of steps with and without a graph, and when its table is logged."""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vllm_npu_graph.planning.graph_hits import GraphHits

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Table:
    """Stands in for vLLM's table, which the tests' environment does not have."""

    def __init__(self) -> None:
        self.observed: list[Any] = []

    def observe(self, stat: Any) -> None:
        self.observed.append(stat)

    def log(self, log: Callable[..., object]) -> None:
        log("%d steps", len(self.observed))
        self.observed.clear()


def step(tokens: int, mode: str) -> Any:
    return SimpleNamespace(num_unpadded_tokens=tokens, runtime_mode=mode)


def test_steps_are_counted_and_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    hits = GraphHits(Table(), interval=10, clock=lambda: now[0])
    with caplog.at_level(logging.INFO, "vllm.npu_graph"):
        for tokens, mode, is_missed in (
            *((3, "FULL", False), (9, "NONE", True), (200, "NONE", False)),
            *((9, "NONE", True), (12, "NONE", True)),
        ):
            hits.count(step(tokens, mode), is_missed=is_missed)
        assert not caplog.records
        now[0] = 10.0
        hits.count(step(3, "FULL"), is_missed=False)
        hits.count(step(3, "FULL"), is_missed=False)
        now[0] = 20.0
        hits.count(step(3, "FULL"), is_missed=False)

    assert hits.steps == Counter(FULL=4, NONE=4)
    assert hits.missed == Counter({9: 2, 12: 1})
    first, missed, second = [record.getMessage() for record in caplog.records]
    assert (first, second) == ("6 steps", "2 steps")
    # Said again only when there are more.
    assert "3 steps so far had no graph for their size; tokens (steps): 9 (2), 12 (1)" in missed
