"""Good and failing steps in any order: a good one is never affected by a failed one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from attn_update import StepParameters, UpdateLane, UpdatePlan
from npu_graph_testing.attention import PagedModel, assert_layers_equal

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import RefusingEvents
    from npu_graph_runtime import NpuDevice

STEPS = 60
LONGEST = 32


class TwoSlotModel(PagedModel):
    """Every other layer has a narrower block table, so that one group feeds two slots."""

    def arguments(self, key: int, layer: int, lengths: list[int]) -> dict[str, Any]:
        """Return the arguments of attention in one layer."""
        arguments: dict[str, Any] = super().arguments(key, layer, lengths)
        if layer % 2:
            narrow = self.narrow.get(key)
            if narrow is None:
                narrow = self.narrow[key] = arguments["block_table"][:, :2].contiguous()
            arguments["block_table"] = narrow
        return arguments

    def __post_init__(self) -> None:
        """Make the tables' place first."""
        self.narrow: dict[int, torch.Tensor] = {}
        super().__post_init__()


def fail_instead() -> None:
    raise RuntimeError("not replayed")


def fail_after(replay: Callable[[], None]) -> Callable[[], None]:
    def replay_and_fail() -> None:
        replay()
        raise RuntimeError("replayed")

    return replay_and_fail


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("worker", [False, True])
def test_steps_are_right_whatever_failed_before_them(
    npu_device: NpuDevice,
    refusing: RefusingEvents,
    fail_before: Callable[[UpdatePlan], None],
    *,
    seed: int,
    worker: bool,
) -> None:
    random = Random(seed)
    model = TwoSlotModel(device=npu_device)
    keys = (2, 3)
    model.capture(*keys)
    plans = {key: [model.plans[key], UpdatePlan.compile(model.recorder, key)] for key in keys}
    assert all(len(plan.slot_sizes) == 2 for both in plans.values() for plan in both)
    broken = {key: UpdatePlan.compile(model.recorder, key) for key in keys}
    for plan in broken.values():
        plan.updates[random.randrange(3)].launch["block_size"] = 17
    lane = UpdateLane(npu_device, updater=refusing, worker=worker)
    streams = [npu_device.create_stream() for _ in range(2)]
    npu_device.synchronize()
    latest = {key: [1] * key for key in keys}
    forms: list[Any] = [list, list, list, tuple, np.array, torch.tensor]
    failures = ["", "", "", "before", "behind", "update", "parameters", "wait"]
    num_right = num_failed = 0
    for _ in range(STEPS):
        key = random.choice(keys)
        if random.random() < 0.6:
            latest[key] = [random.randint(1, LONGEST) for _ in range(key)]
        lengths = latest[key]
        failure = random.choice(failures)
        given = [LONGEST + 1] * key if failure == "parameters" else lengths
        ends: Any = random.choice(forms)(list(range(1, key + 1)))
        group = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": random.choice(forms)(given)}
        parameters = StepParameters(key=key, groups={"default": group})
        replay: Callable[[], None] = model.graphs[key].replay
        if failure in ("before", "behind"):
            replay = fail_instead if failure == "before" else fail_after(replay)
        plan = broken[key] if failure == "update" else random.choice(plans[key])
        refusing.refused = failure == "wait"
        if random.random() < 1 / 3:
            fail_before(plan)
        with npu_device.use_stream(random.choice(streams)):
            try:
                lane.run(plan, parameters, replay)
                outputs = [out.clone() for out in model.outputs[key]]
                lane.drain()
            except Exception:  # noqa: BLE001 - as drawn
                num_failed += 1
            else:
                assert failure in ("", "wait"), "a wait is refused only where there is one"
                assert_layers_equal(outputs, model.eager(key, lengths))
                num_right += 1
            refusing.refused = False
    lane.close()
    assert num_right > STEPS // 4
    assert num_failed > STEPS // 6
