"""Fuzzed schedules: two models interleaved on one lane, the host up to 4 steps ahead.

A small share runs every time; the long run is `pytest tests/test_fuzzed_schedules.py
--schedules=10000`. A schedule is a burst of steps without a look at any result; every output of
every layer is then compared bit by bit with the eager operator.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

import cann_sim
from attn_update import NativeUpdater, UpdateLane, UpdateOrder
from attn_update.testing import PagedModel, draw_lengths
from npu_graph_runtime import NpuDevice

KEYS = (1, 2, 4)
LENGTHS_PER_KEY = 12
MOST_AHEAD = 4


class KnownModel:
    """A captured model with the eager outputs of a few sets of lengths for each key."""

    def __init__(self, device: NpuDevice, random: Random, *, num_layers: int, seed: int) -> None:
        self.model = PagedModel(device=device, num_layers=num_layers, seed=seed)
        self.model.capture(*KEYS)
        self.choices = {
            key: [draw_lengths(random, key) for _ in range(LENGTHS_PER_KEY)] for key in KEYS
        }
        self.expected = {
            key: [self._eager(key, lengths) for lengths in choices]
            for key, choices in self.choices.items()
        }

    def _eager(self, key: int, lengths: list[int]) -> torch.Tensor:
        return torch.stack(self.model.eager(key, lengths)).cpu()


@pytest.fixture
def device() -> NpuDevice:
    cann_sim.activate()
    device = NpuDevice(0)
    npu: Any = vars(torch)["npu"]
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    return device


@pytest.mark.parametrize("is_native", [False, True], ids=["python", "native"])
def test_fuzzed_schedules_show_no_wrong_value_and_no_synchronisation(
    device: NpuDevice, num_schedules: int, schedule_seed: int, is_native: bool
) -> None:
    random = Random(schedule_seed)
    lane = UpdateLane(device, native=NativeUpdater.load() if is_native else None)
    wrong = []
    with device.use_stream(device.create_stream()):
        target = KnownModel(device, random, num_layers=3, seed=100)
        draft = KnownModel(device, random, num_layers=1, seed=200)
        for schedule in range(num_schedules):
            before = cann_sim.counters().synchronisations
            burst = []
            for _ in range(random.randint(1, MOST_AHEAD)):
                known, key = random.choice((target, target, draft)), random.choice(KEYS)
                index = random.randrange(LENGTHS_PER_KEY)
                model = known.model
                parameters = model.parameters(key, list(known.choices[key][index]))
                # Either order, and mixed: a step may not rely on what the one before it did.
                order = random.choice((UpdateOrder.REPLAY_FIRST, None, UpdateOrder.UPDATE_FIRST))
                lane.run(model.plans[key], parameters, model.graphs[key].replay, order=order)
                burst.append((known, key, index, torch.stack(model.outputs[key])))
            assert cann_sim.counters().synchronisations == before, f"schedule {schedule}"
            for known, key, index, outputs in burst:
                if not torch.equal(outputs.cpu(), known.expected[key][index]):
                    wrong.append((schedule, key, index))
        device.synchronize()
    assert wrong == []
    assert lane.counters.native_steps == (lane.counters.steps if is_native else 0)
