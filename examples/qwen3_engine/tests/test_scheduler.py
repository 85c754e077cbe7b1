"""Tests of qwen3_engine.serving.scheduler."""

from __future__ import annotations

import pytest

from qwen3_engine.errors import ConfigError
from qwen3_engine.serving.block_allocator import BlockAllocator
from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.scheduler import ScheduledStep, Scheduler, SchedulerConfig, StepKind
from qwen3_engine.serving.sequence import Request, Sequence


def _scheduler(num_blocks: int = 100, **limits: int) -> Scheduler:
    return Scheduler(SchedulerConfig(**limits), BlockAllocator(num_blocks))


def _add(scheduler: Scheduler, *lengths: int) -> list[Sequence]:
    sequences: list[Sequence] = []
    for length in lengths:
        request = Request(prompt=(1,) * length, sampling=SamplingParameters(max_tokens=999))
        sequence = Sequence.start(len(sequences), request)
        scheduler.add(sequence)
        sequences.append(sequence)
    return sequences


def _run(step: ScheduledStep | None) -> ScheduledStep:
    """Do an engine's part of a step: one more token for each sequence."""
    assert step is not None
    for sequence in step.sequences:
        sequence.num_cached = sequence.num_tokens
        sequence.tokens.append(1)
    return step


def test_schedule_nothing_added_is_none() -> None:
    assert _scheduler().schedule() is None


def test_schedule_waiting_sequences_are_prefilled_then_decoded_together() -> None:
    scheduler = _scheduler()
    first, second = _add(scheduler, 5, 200)

    prefill = _run(scheduler.schedule())
    decode = scheduler.schedule()

    assert prefill == ScheduledStep(kind=StepKind.PREFILL, sequences=(first, second))
    assert decode == ScheduledStep(kind=StepKind.DECODE, sequences=(first, second))
    assert (len(first.blocks), len(second.blocks)) == (1, 2)


def test_schedule_sequence_added_later_joins_between_two_decode_steps() -> None:
    scheduler = _scheduler()
    (first,) = _add(scheduler, 5)
    _run(scheduler.schedule())
    _run(scheduler.schedule())
    (second,) = _add(scheduler, 5)

    kinds = [_run(scheduler.schedule()) for _ in range(2)]

    assert [step.kind for step in kinds] == [StepKind.PREFILL, StepKind.DECODE]
    assert kinds[1].sequences == (first, second)


def test_schedule_more_than_max_num_sequences_wait_until_one_leaves() -> None:
    scheduler = _scheduler(max_num_sequences=2)
    first, second, third = _add(scheduler, 1, 1, 1)
    _run(scheduler.schedule())
    assert _run(scheduler.schedule()).sequences == (first, second)

    scheduler.finish(first)

    assert _run(scheduler.schedule()).sequences == (third,)
    assert _run(scheduler.schedule()).sequences == (second, third)


def test_schedule_prefill_stops_at_max_prefill_tokens() -> None:
    scheduler = _scheduler(max_prefill_tokens=10)
    first, second, third = _add(scheduler, 6, 4, 1)

    assert _run(scheduler.schedule()).sequences == (first, second)
    assert _run(scheduler.schedule()).sequences == (third,)


def test_schedule_prompt_above_max_prefill_tokens_is_prefilled_alone() -> None:
    scheduler = _scheduler(max_prefill_tokens=10)
    first, second = _add(scheduler, 11, 1)

    assert _run(scheduler.schedule()).sequences == (first,)
    assert _run(scheduler.schedule()).sequences == (second,)


def test_schedule_no_free_block_lets_a_sequence_wait() -> None:
    scheduler = _scheduler(num_blocks=4)
    first, second = _add(scheduler, 200, 200)

    assert _run(scheduler.schedule()).sequences == (first,)
    assert scheduler.num_waiting == 1
    scheduler.finish(first)

    assert _run(scheduler.schedule()).sequences == (second,)


def test_schedule_full_cache_preempts_the_latest_and_keeps_its_tokens() -> None:
    scheduler = _scheduler(num_blocks=4)
    first, second = _add(scheduler, 128, 256)
    _run(scheduler.schedule())

    step = _run(scheduler.schedule())

    assert step == ScheduledStep(kind=StepKind.DECODE, sequences=(first,), num_preempted=1)
    assert (second.blocks, second.num_cached, second.tokens) == ([], 0, [1])
    scheduler.finish(first)
    again = scheduler.schedule()
    assert again is not None
    assert (again.kind, again.sequences) == (StepKind.PREFILL, (second,))
    assert len(second.pending_tokens) == 257


def test_schedule_preempted_sequence_runs_before_waiting_ones() -> None:
    scheduler = _scheduler(num_blocks=4, max_num_sequences=2)
    first, second, third = _add(scheduler, 128, 256, 1)
    _run(scheduler.schedule())
    _run(scheduler.schedule())
    scheduler.finish(first)

    assert _run(scheduler.schedule()).sequences == (second,)
    assert scheduler.num_waiting == 1
    assert third.blocks == []


def test_finish_releases_all_blocks() -> None:
    allocator = BlockAllocator(10)
    scheduler = Scheduler(SchedulerConfig(), allocator)
    (sequence,) = _add(scheduler, 300)
    scheduler.schedule()
    assert allocator.num_free == 6

    scheduler.finish(sequence)

    assert allocator.num_free == 9
    assert scheduler.schedule() is None


def test_withdraw_prefill_puts_sequences_back_in_order() -> None:
    allocator = BlockAllocator(10)
    scheduler = Scheduler(SchedulerConfig(), allocator)
    first, second = _add(scheduler, 5, 6)
    step = scheduler.schedule()
    assert step is not None

    scheduler.withdraw(step)

    assert (scheduler.num_running, scheduler.num_waiting, allocator.num_free) == (0, 2, 9)
    again = scheduler.schedule()
    assert again is not None
    assert again.sequences == (first, second)


@pytest.mark.parametrize("name", ["max_num_sequences", "max_prefill_tokens"])
def test_scheduler_config_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        SchedulerConfig(**{name: 0})
