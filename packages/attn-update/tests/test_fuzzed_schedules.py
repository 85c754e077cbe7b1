"""Fuzzed schedules: two models interleaved on one lane, the host up to 4 steps ahead.

A small share runs every time; the long run is `pytest tests/test_fuzzed_schedules.py
--schedules=10000`. A schedule is a burst of steps without a look at any result, while the simulated
device runs one task at a time, from a stream that the seed draws. Every output of every layer is
then compared bit by bit with the eager operator.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import torch

import cann_sim
from attn_update import UpdateLane
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import UpdatePlan, UpdaterChoice
    from npu_graph_runtime import NpuDevice
    from npu_graph_testing.attention.cases import DrawnStep

STEPS_PER_KEY = 8
MOST_AHEAD = 4
# A schedule interleaves a target and a draft model, drawn again for each.
TARGETS = (
    "v1 decode",
    "v1 window",
    "v2 sinks",
    "v1 int8 BNSD",
    "latent_attention_v2 BNSD_NBSD padded",
)
DRAFTS = (
    "v1 unpadded",
    "v2 rebound",
    "latent_attention_v2 TND_NTD speculative",
    "context parallel latent BNSD",
)


class KnownModel:
    """A captured model with the eager outputs of a few steps for each key."""

    def __init__(self, device: NpuDevice, random: Random, name: str, *, num_layers: int) -> None:
        case = find_case(name)
        self.model = CaseModel(device=device, case=case, kinds=all_kinds(), num_layers=num_layers)
        self.model.capture(*case.keys)
        self.steps = [
            self.model.draw(random, key) for key in case.keys for _ in range(STEPS_PER_KEY)
        ]
        self.expected = {
            id(step): self._valid(step, self.model.expected(step)) for step in self.steps
        }

    def matches(self, step: DrawnStep, outputs: list[torch.Tensor]) -> bool:
        """Return whether the outputs of a step are those of the eager operator."""
        found = self._valid(step, outputs)
        return all(map(torch.equal, found, self.expected[id(step)]))

    def _valid(self, step: DrawnStep, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [out.cpu() for out in self.model.valid(step.step, outputs)]


def test_fuzzed_schedules_show_no_wrong_value_and_no_synchronisation(
    npu_device: NpuDevice,
    num_schedules: int,
    schedule_seed: int,
    any_updater: UpdaterChoice,
    fail_before: Callable[[UpdatePlan], None],
) -> None:
    random = Random(schedule_seed)
    lane = UpdateLane(npu_device, updater=any_updater)
    targets = [KnownModel(npu_device, random, name, num_layers=3) for name in TARGETS]
    drafts = [KnownModel(npu_device, random, name, num_layers=1) for name in DRAFTS]
    wrong = []
    for schedule in range(num_schedules):
        models = [random.choice(targets), random.choice(drafts)]
        npu_device.synchronize()
        with cann_sim.fuzzed_schedule(schedule_seed + schedule):
            before = cann_sim.counters().synchronisations
            burst = []
            for _ in range(random.randint(1, MOST_AHEAD)):
                known = random.choice(models)
                step = random.choice(known.steps)
                # Some as after a failed step: a step may not rely on the order of the one before.
                if random.random() < 1 / 3:
                    fail_before(known.model.plans[step.key])
                burst.append((known, step, known.model.run(lane, step)))
            assert cann_sim.counters().synchronisations == before, f"schedule {schedule}"
            npu_device.synchronize()
        wrong += [schedule for known, step, out in burst if not known.matches(step, out)]
    assert wrong == []
    assert lane.counters.updater_steps == (0 if any_updater == "operators" else lane.counters.steps)
