"""Every kind on simulated CANN: steps of any lengths equal the eager operator bit by bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import NativeUpdater, UpdateLane
from attn_update.testing import assert_layers_equal
from attn_update.testing.cases import CaseModel, all_cases, all_kinds

if TYPE_CHECKING:
    from attn_update.testing.cases import AttentionCase
    from npu_graph_runtime import NpuDevice

BURSTS, MOST_AHEAD = 25, 4


def assert_captured_differs(model: CaseModel, random: Random) -> None:
    """Show that a step whose lengths never arrived would be seen."""
    key = model.case.keys[-1]
    for _ in range(5):
        drawn = model.draw(random, key)
        captured = replace(drawn, step=model.captured_step(key))
        pairs = zip(model.expected(drawn), model.expected(captured), strict=True)
        if not any(torch.equal(found.cpu(), other.cpu()) for found, other in pairs):
            return
    raise AssertionError("the drawn steps give what the captured one gives")


def test_every_kind_has_a_case() -> None:
    assert {case.kind_name for case in all_cases()} == all_kinds().keys()


@pytest.mark.parametrize("is_native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name.replace(" ", "-"))
def test_steps_of_every_kind_equal_the_eager_operator(
    npu_device: NpuDevice, case: AttentionCase, dtype: torch.dtype, is_native: bool
) -> None:
    # 100 steps a test, two keys mixed, the host up to four steps ahead, block tables written anew.
    random = Random(case.name)
    model = CaseModel(device=npu_device, case=case, dtype=dtype, kinds=all_kinds())
    model.capture(*case.keys)
    lane = UpdateLane(npu_device, native=NativeUpdater.load() if is_native else None)
    assert_captured_differs(model, random)
    for _ in range(BURSTS):
        drawn = [model.draw(random, random.choice(case.keys)) for _ in range(MOST_AHEAD)]
        before = cann_sim.counters().synchronisations
        outputs = [model.run(lane, step) for step in drawn]
        assert cann_sim.counters().synchronisations == before
        for step, found in zip(drawn, outputs, strict=True):
            expected = model.expected(step)
            assert_layers_equal(model.valid(step.step, found), model.valid(step.step, expected))
    assert lane.counters.native_steps == (lane.counters.steps if is_native else 0)
