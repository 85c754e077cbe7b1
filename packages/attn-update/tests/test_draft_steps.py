"""All draft steps of speculative decoding in one graph: a parameter group for each step."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

import cann_sim
from attn_update import (
    NativeUpdater,
    ParameterGroup,
    StepParameterError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from attn_update.testing import PagedModel, assert_layers_equal
from attn_update.testing.paged_model import LONGEST
from npu_graph_runtime import NpuDevice

DRAFT_STEPS, SEQUENCES = 3, 4


@pytest.mark.parametrize("is_native", [False, True])
def test_draft_steps_of_one_graph_take_lengths_of_their_own(is_native: bool) -> None:
    cann_sim.activate()
    device = NpuDevice(0)
    npu: Any = vars(torch)["npu"]
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    random = Random(8)
    lane = UpdateLane(device, native=NativeUpdater.load() if is_native else None)
    with device.use_stream(device.create_stream()):
        model = PagedModel(device=device, num_layers=2)
        model.eager(SEQUENCES, [1] * SEQUENCES)
        layers = range(model.num_layers)

        def run(step: int, lengths: list[int]) -> list[torch.Tensor]:
            return [
                model.recorder.attention(
                    f"draft.{step}/layers.{layer}",
                    model.kind_name,
                    model.arguments(SEQUENCES, layer, lengths),
                    group=f"draft.{step}",
                )[0]
                for layer in layers
            ]

        graph = device.create_graph()
        with model.recorder.recording("draft"), device.capture(graph, pool=model.pool):
            outputs = [run(step, [1] * SEQUENCES) for step in range(DRAFT_STEPS)]
        names = frozenset({"actual_seq_lengths", "actual_seq_lengths_kv"})
        groups = {
            f"draft.{step}": ParameterGroup(arguments=names, pad=True)
            for step in range(DRAFT_STEPS)
        }
        plan = UpdatePlan.compile(model.recorder, "draft", groups=groups)

        def parameters(lengths: list[int]) -> StepParameters:
            """Give every draft step one token more; a short batch is padded and disabled."""
            count = len(lengths)
            return StepParameters(
                key="draft",
                groups={
                    f"draft.{step}": {
                        "actual_seq_lengths": list(range(1, count + 1)),
                        "actual_seq_lengths_kv": [length + step for length in lengths],
                    }
                    for step in range(DRAFT_STEPS)
                },
            )

        for _ in range(10):
            burst = []
            for _ in range(4):
                count = random.randint(1, SEQUENCES)
                lengths = [random.randint(1, LONGEST - DRAFT_STEPS) for _ in range(count)]
                lane.run(plan, parameters(lengths), graph.replay)
                burst.append((lengths, [[out.clone() for out in step] for step in outputs]))
            for lengths, copies in burst:
                padded = [0] * (SEQUENCES - len(lengths))
                for step, copied in enumerate(copies):
                    expected = run(step, [length + step for length in lengths] + padded)
                    count = len(lengths)
                    assert_layers_equal(
                        [out[:count] for out in copied], [out[:count] for out in expected]
                    )
        with pytest.raises(StepParameterError, match=r"draft\.2"):
            lane.run(plan, parameters([LONGEST - 1]), graph.replay)
        device.synchronize()
