"""Attention under context parallelism, against the operator itself and against the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from attn_update import ArgumentError, Recorder
from attn_update.kinds import ContextParallelRank, context_parallel_kinds

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

SEQUENCES, HEADS, KV_HEADS, DIM, BLOCK, COLUMNS, DCP = 3, 4, 2, 16, 16, 2, 2


def make_arguments(lengths: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).half().to("npu")

    table = torch.arange(SEQUENCES * COLUMNS, dtype=torch.int32).reshape(SEQUENCES, COLUMNS)
    cache = random(SEQUENCES * COLUMNS, BLOCK, KV_HEADS * DIM)
    return {
        "query": random(SEQUENCES, HEADS * DCP, DIM),
        "key": cache,
        "value": cache,
        "block_table": table.to("npu"),
        "block_size": BLOCK,
        "input_layout": "TND",
        "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "scale": DIM**-0.5,
        "actual_seq_lengths": list(range(1, SEQUENCES + 1)),
        "actual_seq_lengths_kv": lengths,
    }


@pytest.mark.parametrize("rank", range(DCP))
def test_context_parallel_attention_calls_the_operator_for_the_whole_group(
    npu_device: NpuDevice, rank: int
) -> None:
    recorder = Recorder(
        npu_device, context_parallel_kinds(ContextParallelRank(dcp_size=DCP, dcp_rank=rank))
    )
    lengths = np.array([[9, 8], [1, 0], [30, 29]], dtype=np.int32)
    arguments = make_arguments(lengths)

    attention, lse = recorder.attention("layers.0", "context_parallel_attention", arguments)

    arguments["num_heads"] = HEADS * DCP
    arguments["softmax_lse_flag"] = True
    arguments["actual_seq_lengths_kv"] = lengths[:, rank].tolist()
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    operators: Any = torch.ops.npu
    expected = operators.npu_fused_infer_attention_score(*tensors, **arguments)
    assert lse.shape == (SEQUENCES, HEADS * DCP, 1)
    assert torch.equal(attention.cpu(), expected[0].cpu())
    assert torch.equal(lse.cpu(), expected[1].cpu())


def test_parts_of_all_ranks_merge_to_attention_over_all_keys(npu_device: NpuDevice) -> None:
    # Rank 0 holds the first block of each sequence, rank 1 the second.
    whole = [BLOCK + 5, BLOCK + 16, BLOCK + 1]
    lengths = np.array([[BLOCK, length - BLOCK] for length in whole], dtype=np.int32)
    parts = []
    for rank in range(DCP):
        kinds = context_parallel_kinds(ContextParallelRank(dcp_size=DCP, dcp_rank=rank))
        arguments = make_arguments(lengths)
        table = arguments["block_table"]
        arguments["block_table"] = table[:, rank : rank + 1].contiguous()
        recorder = Recorder(npu_device, kinds)
        parts.append(recorder.attention("layers.0", "context_parallel_attention", arguments))

    sums = torch.stack([lse.cpu() for _, lse in parts])
    weights = (sums - sums.logsumexp(0)).exp()
    merged = (torch.stack([out.cpu().float() for out, _ in parts]) * weights).sum(0)

    arguments = make_arguments(whole)
    arguments["num_heads"] = HEADS * DCP
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    operators: Any = torch.ops.npu
    expected = operators.npu_fused_infer_attention_score(*tensors, **arguments)[0]
    torch.testing.assert_close(merged, expected.cpu().float(), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"softmax_lse_flag": False}, "merges by the softmax sums"),
        ({"num_heads": None}, "expected the number of query heads of one process, found None"),
    ],
)
def test_context_parallel_attention_called_wrongly_is_refused(
    npu_device: NpuDevice, change: dict[str, Any], reason: str
) -> None:
    recorder = Recorder(npu_device, context_parallel_kinds(ContextParallelRank(dcp_size=DCP)))
    with pytest.raises(ArgumentError, match=reason):
        recorder.attention(
            "layers.0", "context_parallel_attention", {**make_arguments([1] * SEQUENCES), **change}
        )
