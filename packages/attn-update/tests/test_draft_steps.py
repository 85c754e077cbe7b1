"""All draft steps of speculative decoding in one graph: a parameter group for each step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from attn_update import (
    ParameterGroup,
    StepParameterError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    import torch

    from attn_update import UpdaterChoice
    from npu_graph_runtime import NpuDevice

DRAFT_STEPS, SEQUENCES = 3, 4


class DraftModel(CaseModel):
    """Captures all draft steps, each with all layers, under the key ``draft``."""

    def capture_steps(self, groups: dict[str, ParameterGroup] | None) -> UpdatePlan:
        """Capture and compile; the outputs are by step and layer."""
        captured = [self.captured_step(SEQUENCES)] * DRAFT_STEPS
        self.run_steps(captured)
        self.graph: Any = self.device.create_graph()
        with self.recorder.recording("draft"), self.device.capture(self.graph, pool=self.pool):
            self.captured_outputs = self.run_steps(captured)
        return UpdatePlan.compile(self.recorder, "draft", groups=groups)

    def run_steps(self, steps: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
        return [
            [
                self.recorder.attention(
                    f"draft.{index}/layers.{layer}",
                    self.kind_name,
                    self.arguments(SEQUENCES, layer, step),
                    group=f"draft.{index}",
                )[0]
                for layer in range(self.num_layers)
            ]
            for index, step in enumerate(steps)
        ]


def parameters(plan: UpdatePlan, steps: list[dict[str, Any]]) -> StepParameters:
    groups = {
        f"draft.{index}": {name: step[name] for name in plan.groups[f"draft.{index}"].arguments}
        for index, step in enumerate(steps)
    }
    return StepParameters(key="draft", groups=groups)


@pytest.mark.parametrize(
    "name", ["v1 unpadded", "latent_attention_v2 TND unpadded", "latent_attention_v2 TND padded"]
)
def test_draft_steps_of_one_graph_take_parameters_of_their_own(
    npu_device: NpuDevice, name: str, any_updater: UpdaterChoice
) -> None:
    random = Random(8)
    model = DraftModel(device=npu_device, case=find_case(name), kinds=all_kinds())
    plan = model.capture_steps(None)
    lane = UpdateLane(npu_device, updater=any_updater)
    for _ in range(10):
        bursts = [
            [model.case.draw(random, model, SEQUENCES) for _ in range(DRAFT_STEPS)]
            for _ in range(4)
        ]
        outputs = []
        for steps in bursts:
            lane.run(plan, parameters(plan, steps), model.graph.replay)
            outputs.append([[out.clone() for out in outs] for outs in model.captured_outputs])
        for steps, found in zip(bursts, outputs, strict=True):
            for step, outs, expected in zip(steps, found, model.run_steps(steps), strict=True):
                assert_layers_equal(model.valid(step, outs), model.valid(step, expected))


def test_draft_steps_of_a_short_batch_are_padded_where_declared(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    random = Random(9)
    model = DraftModel(device=npu_device, case=find_case("v1 decode"), kinds=all_kinds())
    names = frozenset({"actual_seq_lengths", "actual_seq_lengths_kv"})
    groups = {
        f"draft.{step}": ParameterGroup(arguments=names, pad=True) for step in range(DRAFT_STEPS)
    }
    plan = model.capture_steps(groups)
    lane = UpdateLane(npu_device, updater=any_updater)

    def step_lengths(lengths: list[int], step: int) -> dict[str, Any]:
        """Give a draft step one token more of each sequence."""
        return {
            "actual_seq_lengths": list(range(1, len(lengths) + 1)),
            "actual_seq_lengths_kv": [length + step for length in lengths],
        }

    for _ in range(10):
        count = random.randint(1, SEQUENCES)
        lengths = [random.randint(1, 40) for _ in range(count)]
        given = [step_lengths(lengths, step) for step in range(DRAFT_STEPS)]
        lane.run(plan, parameters(plan, given), model.graph.replay)
        found = [[out.clone() for out in outs] for outs in model.captured_outputs]
        empty = [0] * (SEQUENCES - count)
        padded = [
            {
                "actual_seq_lengths": list(range(1, SEQUENCES + 1)),
                "actual_seq_lengths_kv": step["actual_seq_lengths_kv"] + empty,
            }
            for step in given
        ]
        for outs, expected in zip(found, model.run_steps(padded), strict=True):
            assert_layers_equal([out[:count] for out in outs], [out[:count] for out in expected])

    too_long = [step_lengths([47], step) for step in range(DRAFT_STEPS)]
    with pytest.raises(StepParameterError, match=r"draft\.2"):
        lane.run(plan, parameters(plan, too_long), model.graph.replay)
