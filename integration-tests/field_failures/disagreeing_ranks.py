"""Ranks that would wait for each other: each rank learns which ranks differ, and how."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from field_failures.field_failure import Failing, field_failure, told
from npu_graph_runtime import CaptureSizes, RankAgreement, RunMode
from npu_graph_runtime.errors import RankFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npu_graph_runtime import NpuDevice

RANKS = 2
SIZES = {RunMode.FULL: CaptureSizes((1, 2, 4)), RunMode.PIECEWISE: CaptureSizes((4, 8))}


class _Group:
    """A collective between threads, which ends with an exception where one does not come."""

    def __init__(self, seconds: float = 0.5) -> None:
        self._rows: list[tuple[int, ...]] = [()] * RANKS
        self._barrier = threading.Barrier(RANKS, timeout=seconds)

    def exchange(self, rank: int) -> Callable[[tuple[int, ...]], Sequence[Sequence[int]]]:
        """Return the collective of one rank."""

        def gather(row: tuple[int, ...]) -> Sequence[Sequence[int]]:
            self._rows[rank] = row
            self._barrier.wait()
            rows = list(self._rows)
            self._barrier.wait()
            return rows

        return gather

    def run(self, ranks: Sequence[Callable[[], object]]) -> str:
        """Run each rank in a thread, and return the error of each."""
        said: dict[int, str] = {}

        def call(rank: int) -> None:
            said[rank] = f"on rank {rank}: {told(RuntimeError, ranks[rank])}"

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(len(ranks))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(said) == list(range(len(ranks)))
        return "; ".join(said.values())


def _agreements(group: _Group) -> list[RankAgreement]:
    return [RankAgreement(SIZES, group.exchange(rank), rank=rank) for rank in range(RANKS)]


@field_failure("vllm#25906", names=("rank 0:", "rank 1:", "capture sizes", "step 0"))
def ranks_of_other_capture_sizes(_: NpuDevice) -> Iterator[Failing]:
    """A rank with no request runs a graph of another size than the one that has them."""
    group = _Group()
    other = {RunMode.FULL: CaptureSizes((1, 2, 8))}
    ranks = [
        RankAgreement(SIZES, group.exchange(0), rank=0),
        RankAgreement(other, group.exchange(1), rank=1),
    ]
    yield lambda: group.run(
        [lambda: ranks[0].agree(RunMode.FULL, 2), lambda: ranks[1].agree(RunMode.FULL, 0)]
    )


@field_failure("vllm-ascend#6011", names=("rank 0: piecewise", "rank 1: breakable", "step 0"))
def ranks_of_other_run_modes(_: NpuDevice) -> Iterator[Failing]:
    """Collectives inside of a graph and outside of one do not meet."""
    group = _Group()
    first, second = _agreements(group)
    yield lambda: group.run(
        [
            lambda: first.agree(RunMode.PIECEWISE, 2),
            lambda: second.agree(RunMode.BREAKABLE, 2),
        ]
    )


@field_failure("vllm#28224", names=("rank 0: 1", "rank 1: 0", "at other steps"))
def rank_that_is_a_step_ahead(_: NpuDevice) -> Iterator[Failing]:
    """A rank decodes once more than another, and the others wait in the next collective."""
    earlier, group = _Group(), _Group()
    exchanges = [earlier.exchange(0)]

    def latest(row: tuple[int, ...]) -> Sequence[Sequence[int]]:
        return exchanges[-1](row)

    first = RankAgreement(SIZES, latest, rank=0)
    ahead = threading.Thread(target=first.agree, args=(RunMode.FULL, 2))
    ahead.start()
    RankAgreement(SIZES, earlier.exchange(1), rank=1).agree(RunMode.FULL, 2)
    ahead.join()
    exchanges.append(group.exchange(0))
    second = RankAgreement(SIZES, group.exchange(1), rank=1)
    yield lambda: group.run(
        [lambda: first.agree(RunMode.FULL, 2), lambda: second.agree(RunMode.FULL, 2)]
    )


@field_failure("vllm-ascend#7267", "vllm-ascend#3128", names=("rank 0", "did not take part"))
def idle_rank_that_does_not_come(_: NpuDevice) -> Iterator[Failing]:
    """With a single request the ranks without one do not take part, and the step hangs."""
    first, _second = _agreements(_Group())
    yield lambda: told(RankFailedError, lambda: first.agree(RunMode.FULL, 1))


@field_failure("vllm#23534", names=("rank 1 gave up", "step 0"))
def rank_that_failed(_: NpuDevice) -> Iterator[Failing]:
    """A rank fails during startup; the visible symptom is that all others wait for it."""
    group = _Group()
    first, second = _agreements(group)

    def fails() -> object:
        thread = threading.Thread(target=second.give_up)
        thread.start()
        error = told(RankFailedError, lambda: first.agree(RunMode.FULL, 2))
        thread.join()
        return error

    yield fails


FAILURES = (
    ranks_of_other_capture_sizes,
    ranks_of_other_run_modes,
    rank_that_is_a_step_ahead,
    idle_rank_that_does_not_come,
    rank_that_failed,
)
