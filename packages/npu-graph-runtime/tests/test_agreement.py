"""Ranks, as threads, that agree on each step; a rank that fails or vanishes hangs nobody."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime import AgreedStep, CaptureSizes, RankAgreement, RunMode
from npu_graph_runtime.errors import RankDisagreementError, RankFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = {RunMode.FULL: CaptureSizes((1, 2, 4, 8)), RunMode.PIECEWISE: CaptureSizes((16, 64))}
STRENGTH = [RunMode.EAGER, RunMode.PIECEWISE, RunMode.FULL]
PATIENCE = 120.0  # only where ranks hang is it waited for
SEEDS = 125


class Ranks:
    """An all-gather between threads, which ends with an error where one is missing."""

    def __init__(self, count: int, *, patience: float = PATIENCE) -> None:
        self.count = count
        self._rows: list[tuple[int, ...]] = [()] * count
        self._full = threading.Barrier(count)
        self._read = threading.Barrier(count)
        self._patience = patience

    def exchange(self, rank: int) -> Callable[[tuple[int, ...]], Sequence[Sequence[int]]]:
        def gather(row: tuple[int, ...]) -> list[tuple[int, ...]]:
            self._rows[rank] = row
            self._full.wait(self._patience)
            rows = list(self._rows)
            self._read.wait(self._patience)
            return rows

        return gather

    def run(self, work: Callable[[RankAgreement, int], object]) -> list[object]:
        """Return the result or exception of each rank."""

        def one(rank: int) -> object:
            try:
                return work(RankAgreement(SIZES, self.exchange(rank), rank=rank), rank)
            except (RankFailedError, RankDisagreementError) as error:
                return error

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(one, range(self.count)))


Proposal = tuple[RunMode, int]


def expected(proposals: Sequence[Proposal]) -> AgreedStep:
    """The agreement that the ranks must reach, computed directly."""
    tokens = tuple(count for _, count in proposals)
    busy = [mode for mode, count in proposals if count]
    for mode in STRENGTH:
        if mode in busy and mode is not RunMode.EAGER:
            fitting = [size for size in SIZES[mode] if size >= max(tokens)]
            if fitting and RunMode.EAGER not in busy:
                return AgreedStep(mode=mode, bucket=fitting[0], num_tokens=tokens)
            break
        if mode in busy:
            break
    return AgreedStep(mode=RunMode.EAGER, bucket=None, num_tokens=tokens)


def proposal(generator: random.Random) -> Proposal:
    """An engine's proposal: the strongest mode that its own batch fits, or idle."""
    if generator.random() < 0.2:
        return RunMode.FULL, 0
    mode = generator.choice(STRENGTH)
    largest = {RunMode.FULL: 8, RunMode.PIECEWISE: 64, RunMode.EAGER: 200}[mode]
    return mode, generator.randint(1, largest)


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_agree_on_what_all_of_them_can_run(count: int) -> None:
    for seed in range(SEEDS):
        generator = random.Random(seed)
        steps = [[proposal(generator) for _ in range(count)] for _ in range(8)]

        def work(
            agreement: RankAgreement, rank: int, steps: list[list[Proposal]] = steps
        ) -> list[AgreedStep]:
            return [agreement.agree(*step[rank]) for step in steps]

        assert Ranks(count).run(work) == [[expected(step) for step in steps]] * count


@pytest.mark.parametrize("count", [2, 4])
def test_rank_that_fails_ends_all_others(count: int) -> None:
    for seed in range(SEEDS):
        generator = random.Random(seed)
        fails = (generator.randrange(count), generator.randrange(8))

        def work(
            agreement: RankAgreement, rank: int, fails: tuple[int, int] = fails
        ) -> RankAgreement:
            for step in range(8):
                if (rank, step) == fails:
                    agreement.give_up()
                    return agreement
                agreement.agree(RunMode.FULL, 1)
            return agreement

        failing, at = fails
        for rank, result in enumerate(Ranks(count).run(work)):
            if rank == failing:
                assert isinstance(result, RankAgreement)
            else:
                assert isinstance(result, RankFailedError)
                assert f"agreeing on step {at}: rank {failing} gave up" in str(result)


def test_rank_that_vanishes_ends_all_others() -> None:
    def work(agreement: RankAgreement, rank: int) -> object:
        agreement.agree(RunMode.FULL, 1)
        return None if rank == 1 else agreement.agree(RunMode.FULL, 1)

    first, vanished, last = Ranks(3, patience=0.2).run(work)

    assert vanished is None
    for result in (first, last):
        assert isinstance(result, RankFailedError)
        assert "agreeing on step 1: the exchange failed on rank" in str(result)
        assert "BrokenBarrierError" in str(result)


def test_agreement_that_ended_says_so() -> None:
    agreement = RankAgreement(SIZES, lambda row: [row], rank=0)
    agreement.give_up()
    agreement.give_up()

    with pytest.raises(
        RankFailedError, match=r"ended before \(this rank gave up\); make a new one"
    ):
        agreement.agree(RunMode.FULL, 1)


def test_other_capture_sizes_are_named_by_rank() -> None:
    ranks = Ranks(2)

    def work(_: RankAgreement, rank: int) -> AgreedStep:
        sizes = {**SIZES, RunMode.FULL: CaptureSizes((1, 2, 4, 8 + rank))}
        return RankAgreement(sizes, ranks.exchange(rank), rank=rank).agree(RunMode.FULL, 1)

    for result in ranks.run(work):
        assert isinstance(result, RankDisagreementError)
        assert "ranks have other capture sizes (rank 0: " in str(result)


def test_ranks_at_other_steps_are_named() -> None:
    def gather(row: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [row, (row[0], row[1] + 1, *row[2:])]

    with pytest.raises(RankDisagreementError, match=r"at other steps \(rank 0: 0, rank 1: 1\)"):
        RankAgreement(SIZES, gather, rank=0).agree(RunMode.FULL, 1)


def test_modes_that_exclude_each_other_are_named() -> None:
    def work(agreement: RankAgreement, rank: int) -> AgreedStep:
        return agreement.agree((RunMode.PIECEWISE, RunMode.BREAKABLE)[rank], 3)

    for result in Ranks(2).run(work):
        assert isinstance(result, RankDisagreementError)
        assert "(rank 0: piecewise, rank 1: breakable)" in str(result)


@pytest.mark.parametrize(
    "gather", [lambda _: [], lambda _: [(1, 2, 3, 4, 5)], lambda row: [row, row[:3]]]
)
def test_exchange_without_the_rows_of_all_ranks_is_refused(
    gather: Callable[[tuple[int, ...]], list[tuple[int, ...]]],
) -> None:
    with pytest.raises(RankDisagreementError, match="expected the row of each rank"):
        RankAgreement(SIZES, gather, rank=0).agree(RunMode.FULL, 1)


def test_step_without_work_is_idle() -> None:
    step = RankAgreement(SIZES, lambda row: [row], rank=0).agree(RunMode.FULL, 0)

    assert step.is_idle
    assert (step.mode, step.bucket) == (RunMode.EAGER, None)
