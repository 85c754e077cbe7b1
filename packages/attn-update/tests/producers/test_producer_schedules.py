"""Fuzzed schedules of producers, updates and two graphs of different keys in flight."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import UpdateLane
from attn_update.producers import ProducerLane
from npu_graph_testing.attention.sparse_model import Buffers, SparseModel

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice
    from npu_graph_testing.attention.sparse_model import DrawnStep

STEPS_PER_KEY = 8
MOST_AHEAD = 4
# The three forms share the schedules of a run.
NUM_FORMS = 3


def make_models(device: NpuDevice, captured: tuple[bool, bool]) -> list[SparseModel]:
    """Capture graphs of two keys that share one lane and all buffers."""
    lane, producers, buffers = UpdateLane(device), ProducerLane(device), Buffers.make(device)
    shapes = (("decode", 4, 4), ("drafts", 3, 6))
    models = [
        SparseModel(
            device=device,
            lane=lane,
            producers=producers,
            buffers=buffers,
            key=key,
            sequences=sequences,
            tokens=tokens,
            captured=form,
        )
        for (key, sequences, tokens), form in zip(shapes, captured, strict=True)
    ]
    for model in models:
        model.capture()
    device.synchronize()
    return models


def fail_one_step(model: SparseModel, drawn: DrawnStep, *, is_queued: bool) -> None:
    """Run a step whose replay fails, before or after it was queued."""

    def fail() -> None:
        if is_queued:
            model.replay_graph(drawn)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.run_with(drawn, fail)


def wrong_schedules(
    device: NpuDevice, models: list[SparseModel], num_schedules: int, seed: int
) -> list[int]:
    """Return the schedules with an output that is not the eager one."""
    random = Random(seed)
    streams = [device.create_stream() for _ in models]
    steps = [[model.draw(random) for _ in range(STEPS_PER_KEY)] for model in models]
    wrong = []
    for schedule in range(num_schedules):
        device.synchronize()
        with cann_sim.fuzzed_schedule(seed + schedule):
            before = cann_sim.counters().synchronisations
            burst = []
            for _ in range(random.randint(1, MOST_AHEAD)):
                which = random.randrange(len(models))
                drawn = random.choice(steps[which])
                with device.use_stream(streams[which]):
                    # A step may not rely on how the one before ended.
                    if random.random() < 1 / 6:
                        fail_one_step(models[which], drawn, is_queued=random.random() < 1 / 2)
                    burst.append((drawn, models[which].run(drawn)))
            assert cann_sim.counters().synchronisations == before, f"schedule {schedule}"
            device.synchronize()
        for drawn, outputs in burst:
            if not all(map(torch.equal, [out.cpu() for out in outputs], drawn.expected)):
                wrong.append(schedule)
    return wrong


@pytest.mark.parametrize(
    "captured",
    [(False, False), (True, True), (False, True)],
    ids=["beside-the-graphs", "inside-the-graphs", "beside-and-inside"],
)
def test_fuzzed_schedules_with_producers_equal_eager_without_a_synchronisation(
    npu_device: NpuDevice, num_schedules: int, schedule_seed: int, captured: tuple[bool, bool]
) -> None:
    models = make_models(npu_device, captured)
    count = num_schedules // NUM_FORMS + 1
    assert wrong_schedules(npu_device, models, count, schedule_seed) == []
