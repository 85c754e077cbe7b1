"""Fuzzed schedules of updates, producers and layer events, with graphs of two keys in flight.

A small share runs every time; the long run is `pytest integration-tests/mixed_schedules
--schedules=10000`. The host launches a burst of steps of both keys without a look at any result.
Every output, and every row that another stream read behind a layer event, is then compared bit by
bit with the eager step.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

import cann_sim
from mixed_schedules.reading_engine import ReadingEngine, timed_event

if TYPE_CHECKING:
    from mixed_schedules.reading_engine import LaunchedStep
    from mixed_schedules.sending_model import SentStep
    from npu_graph_runtime import NpuDevice

STEPS_PER_KEY = 8
MOST_AHEAD = 4
FORMS = {
    "beside-the-graphs": ((False, False), False),
    "inside-the-graphs": ((True, True), False),
    "beside-and-inside": ((False, True), True),
}


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


@pytest.mark.parametrize(("captured", "shares_buffers"), FORMS.values(), ids=FORMS)
def test_fuzzed_schedules_with_layer_events_equal_eager_without_a_synchronisation(
    device: NpuDevice,
    num_schedules: int,
    schedule_seed: int,
    captured: tuple[bool, bool],
    shares_buffers: bool,
) -> None:
    engine = ReadingEngine(device, captured=captured, shares_buffers=shares_buffers)
    found = run_schedules(engine, num_schedules // len(FORMS) + 1, schedule_seed)
    assert found.wrong == []
    assert found.early_reads >= found.reads // 20


@pytest.mark.parametrize("missing", ["layers", "readers"])
def test_some_schedules_show_a_wait_that_is_missing(device: NpuDevice, missing: str) -> None:
    engine = ReadingEngine(
        device, awaits_layers=missing != "layers", awaits_readers=missing != "readers"
    )
    assert run_schedules(engine, 20, 0).wrong != []
