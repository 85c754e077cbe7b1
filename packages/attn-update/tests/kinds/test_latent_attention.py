"""Multi-head latent attention through the kinds of FIA v1 and v2, on simulated CANN."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

import cann_sim
from attn_update import NativeUpdater, Recorder, StepParameters, UpdateLane, UpdatePlan
from attn_update.testing import assert_layers_equal
from npu_graph_runtime import NpuDevice

SEQUENCES, HEADS, LATENT, ROPE, BLOCK_SIZE, BLOCKS, COLUMNS = 2, 4, 512, 64, 16, 8, 3
NAMES = {
    "fused_infer_attention_v1": (
        "actual_seq_lengths",
        "actual_seq_lengths_kv",
        "num_heads",
        "scale",
    ),
    "fused_infer_attention_v2": (
        "actual_seq_qlen",
        "actual_seq_kvlen",
        "num_query_heads",
        "softmax_scale",
    ),
}


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_latent_attention_steps_equal_the_eager_operator(
    dtype: torch.dtype, kind: str, is_native: bool
) -> None:
    cann_sim.activate()
    device = NpuDevice(0)
    npu: Any = vars(torch)["npu"]
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    random = Random(9)
    generator = torch.Generator().manual_seed(9)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).to("npu")

    query_lengths, key_lengths, heads, scale = NAMES[kind]
    recorder = Recorder(device)
    lane = UpdateLane(device, native=NativeUpdater.load() if is_native else None)
    table = torch.arange(SEQUENCES * COLUMNS, dtype=torch.int32).reshape(SEQUENCES, COLUMNS)
    shared = {
        "query": draw(SEQUENCES, HEADS, LATENT),
        "query_rope": draw(SEQUENCES, HEADS, ROPE),
        "block_table": table.to("npu"),
        "block_size": BLOCK_SIZE,
        "input_layout": "TND",
        "num_key_value_heads": 1,
        heads: HEADS,
        scale: (LATENT + ROPE) ** -0.5,
        query_lengths: list(range(1, SEQUENCES + 1)),
    }
    latents = [draw(BLOCKS, BLOCK_SIZE, LATENT) for _ in range(2)]
    ropes = [draw(BLOCKS, BLOCK_SIZE, ROPE) for _ in range(2)]

    def run(lengths: list[int]) -> list[torch.Tensor]:
        outputs = []
        for index, (latent, rope) in enumerate(zip(latents, ropes, strict=True)):
            given = {"key": latent, "value": latent, "key_rope": rope, key_lengths: lengths}
            outputs.append(recorder.attention(f"layers.{index}", kind, {**shared, **given})[0])
        return outputs

    with device.use_stream(device.create_stream()):
        graph = device.create_graph()
        with recorder.recording(2), device.capture(graph, pool=device.create_memory_pool()):
            outputs = run([1, 1])
        plan = UpdatePlan.compile(recorder, 2)
        for _ in range(10):
            burst = []
            for _ in range(4):
                lengths = [random.randint(1, BLOCK_SIZE * COLUMNS) for _ in range(SEQUENCES)]
                group = {query_lengths: [1, 2], key_lengths: lengths}
                parameters = StepParameters(key=2, groups={"default": dict(group)})
                lane.run(plan, parameters, graph.replay)
                burst.append((lengths, [out.clone() for out in outputs]))
            for lengths, copies in burst:
                assert_layers_equal(copies, run(lengths))
        device.synchronize()
