"""A run of fuzzed schedules: bursts of steps of both keys, and what their values show."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import cann_sim
from mixed_schedules.reading_engine import timed_event

if TYPE_CHECKING:
    from mixed_schedules.reading_engine import LaunchedStep, ReadingEngine
    from mixed_schedules.sending_model import SentStep

STEPS_PER_KEY = 8
MOST_AHEAD = 4


@dataclass(kw_only=True)
class Found:
    """What was seen in some schedules.

    Attributes:
        wrong: The schedules with a value that is not the eager one.
        reads: Of layers' caches.
        early_reads: Those that had ended when their graph was still running.
    """

    wrong: list[int]
    reads: int = 0
    early_reads: int = 0


def run_burst(
    engine: ReadingEngine, steps: list[list[SentStep]], random: Random
) -> list[LaunchedStep]:
    """Launch steps of both keys; some are read only when the other key's graph is queued too."""
    first = random.randrange(2)
    order = [first, 1 - first, *random.choices(range(2), k=random.randint(0, MOST_AHEAD - 2))]
    burst: list[LaunchedStep] = []
    unread: LaunchedStep | None = None
    for which in order:
        model = engine.models[which]
        if unread is not None and unread.model is model:
            # The next replay of its graph ends the step.
            engine.read_some(unread, random)
            unread = None
        # A step may not rely on how the one before ended.
        if random.random() < 1 / 6:
            drawn = random.choice(steps[which])
            engine.fail(model, drawn, is_queued=random.random() < 1 / 2)
        burst.append(engine.launch(model, random.choice(steps[which])))
        if unread is not None:
            engine.read_some(unread, random)
        unread = burst[-1]
        if random.random() < 1 / 2:
            engine.read_some(unread, random)
            unread = None
    if unread is not None:
        engine.read_some(unread, random)
    return burst


def run_schedules(engine: ReadingEngine, num_schedules: int, seed: int) -> Found:
    """Run fuzzed schedules, in which the host waits for nothing."""
    random, found = Random(seed), Found(wrong=[])
    steps = [[model.draw(random) for _ in range(STEPS_PER_KEY)] for model in engine.models]
    for schedule in range(num_schedules):
        engine.device.synchronize()
        with cann_sim.fuzzed_schedule(seed + schedule):
            begin = timed_event()
            begin.record()
            before = cann_sim.counters().synchronisations
            # The device seldom falls behind a host in Python.
            held = random.choice([[], list(engine.streams.values()), engine.readers])
            with engine.held(held):
                burst = run_burst(engine, steps, random)
            assert cann_sim.counters().synchronisations == before, f"schedule {schedule}"
            engine.device.synchronize()
        if not all(step.is_right() for step in burst):
            found.wrong.append(schedule)
        found.reads += sum(len(step.reads) for step in burst)
        found.early_reads += sum(step.early_reads(begin) for step in burst)
    return found
