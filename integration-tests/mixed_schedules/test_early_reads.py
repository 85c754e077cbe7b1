"""Caches of the first layers are read in each replay while later layers still have to run.

The second layer of the graph waits for its lengths, which the host gives only after the reads. A
small share runs every time; `--schedules=10000` runs 1,000 replays.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import cann_sim
from mixed_schedules.reading_engine import ReadingEngine
from mixed_schedules.sending_model import NAMES

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

FEWEST, SCHEDULES_PER_REPLAY = 50, 10


@pytest.fixture
def num_replays(num_schedules: int) -> int:
    return max(FEWEST, num_schedules // SCHEDULES_PER_REPLAY)


def wrong_replays(engine: ReadingEngine, num_replays: int, seed: int) -> list[int]:
    """Return the replays with a value that is not the eager one, and show that reads are early."""
    random, reader, wrong = Random(seed), engine.readers[0], []
    steps = [(model, model.draw(random)) for model in engine.models for _ in range(4)]
    for replay in range(num_replays):
        model, drawn = random.choice(steps)
        engine.device.synchronize()
        with cann_sim.fuzzed_schedule(seed + replay):
            with engine.halfway(model, drawn) as step:
                for layer in (0, 1):
                    engine.read(step, layer, reader)
                with engine.device.use_stream(reader):
                    is_read_right = step.is_read_right()
                assert not step.end.query(), f"replay {replay}"
                assert not step.events.is_reached(NAMES[2]), f"replay {replay}"
            engine.device.synchronize()
        if not (is_read_right and step.is_right()):
            wrong.append(replay)
    return wrong


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_caches_are_read_while_later_layers_have_not_run(
    device: NpuDevice, num_replays: int, schedule_seed: int, captured: bool
) -> None:
    engine = ReadingEngine(device, captured=(captured, captured))
    assert wrong_replays(engine, num_replays, schedule_seed) == []


def test_reads_that_wait_for_no_layer_are_wrong(device: NpuDevice) -> None:
    engine = ReadingEngine(device, awaits_layers=False)
    assert wrong_replays(engine, FEWEST, 0) != []
