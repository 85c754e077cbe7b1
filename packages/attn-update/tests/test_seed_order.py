"""The order in which engines replay and update, on simulated CANN under fuzzed schedules.

vLLM-Ascend's `update_attn_params` replays and then updates on a separate stream, which nothing on
the device orders after the previous replay. A host synchronisation before every replay makes
that correct. Without it, as soon as the host runs ahead, a replay may use the lengths of a later
step, or the previous replay may consume its record so that it waits forever. The simulated device
detects the missing order under any schedule; `test_fuzzed_schedules` also shows a wrong order.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import torch

import cann_sim
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from attn_update.task_device import Stream
    from npu_graph_runtime import NpuDevice
    from npu_graph_testing.attention.cases import DrawnStep

SCHEDULES, STEPS = 40, 4
RIGHT, WRONG, NAMED = "right", "wrong value", "named"


def run_as_seed(model: CaseModel, drawn: DrawnStep, stream: Stream) -> list[torch.Tensor]:
    """Replay, then update every layer on `stream`; return copies of the outputs."""
    device, plan = model.device, model.plans[drawn.key]
    (values,) = plan.check(model.parameters(drawn.key, drawn.step)).values
    model.graphs[drawn.key].replay()
    outputs = [out.clone() for out in model.outputs[drawn.key]]
    with device.use_stream(stream):
        for update in plan.updates:
            device.begin_task_update(stream, update.handle)
            update.call(**{**update.launch, **values})
            device.end_task_update(stream)
            update.event.record(stream)
    return outputs


def settle(device: NpuDevice) -> None:
    """Restart the device and drop what torch_npu's queue still passes to it after a failure."""
    for _ in range(STEPS):
        cann_sim.restart_devices()
        with contextlib.suppress(RuntimeError):
            device.synchronize()
            return
    device.synchronize()


def outcomes(device: NpuDevice, schedules: int, *, synchronises: bool) -> Counter[str]:
    """Return how many schedules of the seed's order ended how."""
    case = find_case("v1 decode")
    model = CaseModel(device=device, case=case, kinds=all_kinds())
    model.capture(2)
    random, stream = Random(5), device.create_stream()
    steps = [model.draw(random, 2) for _ in range(8)]
    expected = {id(step): [out.cpu() for out in model.eager(2, step.step)] for step in steps}
    found: Counter[str] = Counter()
    for seed in range(schedules):
        drawn = [random.choice(steps) for _ in range(STEPS)]
        outputs: list[list[torch.Tensor]] = []
        device.synchronize()
        cann_sim.set_schedule(f"fuzz:{seed}")
        try:
            for step in drawn:
                if synchronises:
                    device.synchronize()
                outputs.append(run_as_seed(model, step, stream))
            device.synchronize()
        except RuntimeError as error:
            if not re.search("nothing orders|deadlock", str(error)):
                raise
            found[NAMED] += 1
            # The device has stopped, and events may be as a dropped record left them.
            settle(device)
            cann_sim.set_schedule("free")
            model.graphs.pop(2).reset()
            model.recorder.release(2)
            model.capture(2)
            continue
        cann_sim.set_schedule("free")
        is_right = all(
            torch.equal(out.cpu(), right)
            for step, outs in zip(drawn, outputs, strict=True)
            for out, right in zip(outs, expected[id(step)], strict=True)
        )
        found[RIGHT if is_right else WRONG] += 1
    return found


def test_seed_order_without_its_host_synchronisation_is_named(npu_device: NpuDevice) -> None:
    assert outcomes(npu_device, 20, synchronises=False) == {NAMED: 20}


def test_seed_order_with_its_host_synchronisation_is_right(npu_device: NpuDevice) -> None:
    before = cann_sim.counters().synchronisations
    assert outcomes(npu_device, SCHEDULES, synchronises=True) == {RIGHT: SCHEDULES}
    assert cann_sim.counters().synchronisations - before >= SCHEDULES * STEPS
