"""Encoder attention by a budget of tokens, on simulated CANN."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import (
    ParameterGroup,
    Recorder,
    StepParameterError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_testing.attention import assert_layers_equal

if TYPE_CHECKING:
    from attn_update import UpdaterChoice
    from npu_graph_runtime import NpuDevice

TOKENS, SEQUENCES, HEADS, HEAD_DIM = 24, 4, 2, 16


def draw_ends(random: Random) -> list[int]:
    """Return the cumulative lengths of two or three sequences that leave tokens over."""
    count = random.randint(2, SEQUENCES - 1)
    return sorted(random.sample(range(1, TOKENS - 1), count))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_encoder_steps_with_padding_equal_the_eager_operator(
    npu_device: NpuDevice, dtype: torch.dtype, any_updater: UpdaterChoice
) -> None:
    random = Random(7)
    generator = torch.Generator().manual_seed(7)
    recorder = Recorder(npu_device)
    lane = UpdateLane(npu_device, updater=any_updater)
    layers = [
        torch.randn(3, TOKENS, HEADS, HEAD_DIM, generator=generator).to(dtype).to("npu")
        for _ in range(3)
    ]

    def run(ends: list[int]) -> list[torch.Tensor]:
        return [
            recorder.attention(
                f"blocks.{index}",
                "encoder_attention",
                {
                    "query": layer[0],
                    "key": layer[1],
                    "value": layer[2],
                    "input_layout": "TND",
                    "num_heads": HEADS,
                    "num_key_value_heads": HEADS,
                    "scale": HEAD_DIM**-0.5,
                    "actual_seq_lengths": ends,
                    "actual_seq_lengths_kv": ends,
                },
            )[0]
            for index, layer in enumerate(layers)
        ]

    graph = npu_device.create_graph()
    captured = [6, 12, 18, TOKENS]
    with (
        recorder.recording(TOKENS),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
    ):
        outputs = run(captured)
    names = frozenset({"actual_seq_lengths"})
    groups = {"default": ParameterGroup(arguments=names, pad=True)}
    plan = UpdatePlan.compile(recorder, TOKENS, groups=groups)
    for _ in range(12):
        burst = []
        for _ in range(3):
            ends = draw_ends(random)
            parameters = {"default": {"actual_seq_lengths": ends}}
            lane.run(plan, StepParameters(key=TOKENS, groups=parameters), graph.replay)
            burst.append((ends, [out.clone() for out in outputs]))
        for ends, copies in burst:
            valid = ends[-1]
            full = [*ends, *[valid] * (SEQUENCES - len(ends) - 1), TOKENS]
            expected = [out[:valid] for out in run(full)]
            assert_layers_equal([copy[:valid] for copy in copies], expected)
    falling = {"default": {"actual_seq_lengths": [9, 5, 12, TOKENS]}}
    with pytest.raises(StepParameterError):
        lane.run(plan, StepParameters(key=TOKENS, groups=falling), graph.replay)
