"""Fused infer attention with queries, keys and values in int8 (MLA), against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers, random

LATENT, ROPE, BLOCK, HEADS, KEY_SCALE, VALUE_SCALE = 512, 64, 128, 8, 0.03, 0.04
CAUSAL = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), 1)


def units(cache: torch.Tensor) -> torch.Tensor:
    """Return pages [blocks, block, dim] in units of 32 bytes, [blocks, 1, units, block, unit]."""
    unit = 32 // cache.element_size()
    blocks, size, width = cache.shape
    return cache.view(blocks, size, width // unit, unit).transpose(1, 2).unsqueeze(1).contiguous()


class Batch:
    """Sequences over paged latent keys, which all heads share."""

    def __init__(self, query_lengths: list[int], key_lengths: list[int]) -> None:
        self.query_lengths, self.key_lengths = query_lengths, key_lengths
        width = max(math.ceil(n / BLOCK) for n in key_lengths)
        blocks, tokens = len(key_lengths) * width, sum(query_lengths)
        self.scale = 1 / math.sqrt(LATENT + ROPE)
        self.query = integers(tokens, HEADS, LATENT, seed=1)
        self.query_scale = random(tokens, HEADS, seed=2).abs() / 30 + 0.01
        self.query_rope = (random(tokens, HEADS, ROPE, seed=3) * 30).bfloat16()
        self.key = integers(blocks, BLOCK, LATENT, seed=4)
        self.value = integers(blocks, BLOCK, LATENT, seed=5)
        self.key_rope = (random(blocks, BLOCK, ROPE, seed=6) * 30).bfloat16()
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(7))
        self.table = order.view(-1, width).int()

    def arguments(self, **changes: Any) -> dict[str, Any]:
        given = {
            "query": self.query.unsqueeze(1),
            "key": units(self.key),
            "value": units(self.value),
            "query_rope": self.query_rope.unsqueeze(1),
            "key_rope": units(self.key_rope),
            "block_table": self.table,
            "dequant_scale_query": self.query_scale.unsqueeze(1),
            "dequant_scale_key": torch.tensor([KEY_SCALE]),
            "dequant_scale_value": torch.tensor([VALUE_SCALE]),
            "input_layout": "BSND",
            "block_size": BLOCK,
            "actual_seq_kvlen": self.key_lengths,
            "num_query_heads": HEADS,
            "num_key_value_heads": 1,
            "softmax_scale": self.scale,
            "query_quant_mode": 3,
            **changes,
        }
        return {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in given.items()}

    def reference(self, *, causal: bool) -> torch.Tensor:
        outputs, token = [], 0
        for index, (own, keys) in enumerate(zip(self.query_lengths, self.key_lengths, strict=True)):
            pages = self.table[index].long()
            key, value, rope = (
                cache[pages].flatten(0, 1)[:keys].double()
                for cache in (self.key, self.value, self.key_rope)
            )
            for position in range(own):
                seen = keys - own + position + 1 if causal else keys
                scores = self.query[token].double() @ key[:seen].T
                scores = scores + self.query_rope[token].double() @ rope[:seen].T
                scores = scores * self.query_scale[token].double().unsqueeze(-1) * KEY_SCALE
                weights = (scores * self.scale).softmax(-1)
                outputs.append(weights @ (value[:seen] * VALUE_SCALE))
                token += 1
        return torch.stack(outputs)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    # Scores of up to 100 in float32, of values below 6.
    limit = torch.tensor(6.0).double()
    conformance.close(result.cpu(), reference, ulps=2000, magnitude=limit)


@pytest.mark.parametrize("layout", ["BSND", "BSND_NBSD", "BSH", "BSH_NBSD"])
def test_batch_decodes_in_int8(conformance: Any, layout: str) -> None:
    batch = Batch([1, 1, 1], [1, 128, 300])
    changes: dict[str, Any] = {"input_layout": layout}
    if layout.startswith("BSH"):
        changes["query"] = batch.query.flatten(1).unsqueeze(1)
        changes["query_rope"] = batch.query_rope.flatten(1).unsqueeze(1)
    output, _ = torch_npu.npu_fused_infer_attention_score_v2(**batch.arguments(**changes))
    assert output.dtype == torch.bfloat16
    result = output.permute(1, 2, 0, 3) if layout.endswith("NBSD") else output
    close(conformance, result.reshape(3, HEADS, LATENT), batch.reference(causal=False))


@pytest.mark.parametrize("layout", ["TND", "TND_NTD"])
def test_packed_queries_attend_in_int8(conformance: Any, layout: str) -> None:
    batch = Batch([2, 1], [200, 40])
    given = batch.arguments(
        query=batch.query,
        query_rope=batch.query_rope,
        dequant_scale_query=batch.query_scale,
        input_layout=layout,
        actual_seq_qlen=[2, 3],
        sparse_mode=3,
        atten_mask=CAUSAL,
    )
    output, _ = torch_npu.npu_fused_infer_attention_score_v2(**given)
    result = output.transpose(0, 1) if layout == "TND_NTD" else output
    close(conformance, result, batch.reference(causal=True))


def test_captured_launch_is_updated_with_a_workspace(conformance: Any) -> None:
    batch = Batch([1, 1], [100, 300])
    given = batch.arguments()
    workspace = torch_npu._npu_fused_infer_attention_score_v2_get_max_workspace(**given)
    output = torch.zeros(2, 1, HEADS, LATENT, dtype=torch.bfloat16).to("npu")
    sums = torch.empty(1).to("npu")
    torch_npu.npu_fused_infer_attention_score_v2.out(
        workspace=workspace, out=[output, sums], **given
    )
    close(conformance, output.squeeze(1), batch.reference(causal=False))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"query_quant_mode": 0}, "queryQuantMode.*found 0, 0 and 0"),
        ({"dequant_scale_query": None}, "'query'"),
        ({"dequant_scale_key": None}, "keyAntiquantScale.*found none"),
        ({"dequant_scale_value": torch.ones(2)}, "valueAntiquantScale"),
        ({"dequant_scale_query": torch.ones(2, 1, 4)}, "dequantScaleQuery"),
        ({"block_size": 64}, "block size 64.*found"),
        ({"query_rope": None, "key_rope": None}, "queryRope.*found none"),
        ({"return_softmax_lse": True}, "softmaxLseFlag.*found true"),
    ],
)
def test_what_the_device_refuses_in_int8_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    # Without rotary parts torch_npu has no dtype for the output but that of the queries.
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_fused_infer_attention_score_v2(**Batch([1, 1], [1, 9]).arguments(**changes))
