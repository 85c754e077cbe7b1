"""Ranks that the tests of collectives share, and those that a test may spoil."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from collectives.rank_processes import RankProcesses

StartRanks = Callable[..., RankProcesses]


@pytest.fixture(scope="package")
def one_rank() -> Iterator[RankProcesses]:
    # Where a launch is refused, torch_npu's task queue would give up for good.
    ranks = RankProcesses(1, {"TASK_QUEUE_ENABLE": "0"})
    yield ranks
    ranks.close()


@pytest.fixture(scope="package")
def two_ranks() -> Iterator[RankProcesses]:
    ranks = RankProcesses(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="package")
def four_ranks() -> Iterator[RankProcesses]:
    ranks = RankProcesses(4)
    yield ranks
    ranks.close()


@pytest.fixture
def start_ranks() -> Iterator[StartRanks]:
    """Return a function that starts ranks of their own for one test."""
    started: list[RankProcesses] = []

    def start(ranks: int, **environment: str) -> RankProcesses:
        started.append(RankProcesses(ranks, environment))
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()
