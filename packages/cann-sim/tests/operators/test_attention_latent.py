"""Fused infer attention with separate rotary parts (MLA), against float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
CAUSAL = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), 1)
LATENT, ROPE, BLOCK, HEADS = 512, 64, 128, 8


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, causal: bool
) -> torch.Tensor:
    """Attention of one sequence: query [S, N, D], key [K, KV_N, D], value [K, KV_N, V]."""
    length, heads, _ = query.shape
    group = heads // key.shape[1]
    output = torch.zeros(length, heads, value.shape[-1], dtype=torch.float64)
    for position in range(length):
        seen = len(key) - length + position + 1 if causal else len(key)
        for head in range(heads):
            own = key[:seen, head // group].double()
            weights = (own @ query[position, head].double() * scale).softmax(0)
            output[position, head] = weights @ value[:seen, head // group].double()
    return output


@dataclass
class Latent:
    """A batch over paged latent keys, which all heads share and which are the values too."""

    query_lengths: list[int]
    key_lengths: list[int]
    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        width = max(math.ceil(n / BLOCK) for n in self.key_lengths)
        blocks = len(self.key_lengths) * width + 1
        tokens = sum(self.query_lengths)
        self.scale = 1 / math.sqrt(LATENT + ROPE)
        self.query = random(tokens, HEADS, LATENT, seed=1, dtype=self.dtype)
        self.query_rope = random(tokens, HEADS, ROPE, seed=2, dtype=self.dtype)
        self.key = random(blocks, BLOCK, LATENT, seed=3, dtype=self.dtype)
        self.key_rope = random(blocks, BLOCK, ROPE, seed=4, dtype=self.dtype)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(5))
        self.table = order[: blocks - 1].view(-1, width).int()

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {
            "query_rope": self.query_rope.to("npu"),
            "key_rope": self.key_rope.to("npu"),
            "block_table": self.table.to("npu"),
            "block_size": BLOCK,
            "actual_seq_lengths_kv": self.key_lengths,
            "num_heads": HEADS,
            "num_key_value_heads": 1,
            "scale": self.scale,
            **changes,
        }

    def reference(self, *, causal: bool = True) -> torch.Tensor:
        outputs, start = [], 0
        for index, (own, keys) in enumerate(zip(self.query_lengths, self.key_lengths, strict=True)):
            pages = self.table[index].long()
            latent = self.key[pages].reshape(-1, 1, LATENT)[:keys]
            rope = self.key_rope[pages].reshape(-1, 1, ROPE)[:keys]
            rows = slice(start, start + own)
            query = torch.cat([self.query[rows], self.query_rope[rows]], -1)
            key = torch.cat([latent, rope], -1)
            outputs.append(attend(query, key, latent, self.scale, causal=causal))
            start += own
        return torch.cat(outputs)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor, keys: int) -> None:
    # Scores, weights and their sums in float32: an error of some units a key, of values below 5.
    conformance.close(result.cpu(), reference, ulps=32 + keys, magnitude=torch.tensor(5.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "TND_NTD"])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_queries_attend_to_latent_pages(
    conformance: Any, dtype: torch.dtype, layout: str, causal: bool
) -> None:
    batch = Latent([1, 3], [40, 200], dtype)
    mask = {"sparse_mode": 3, "atten_mask": CAUSAL.to("npu")} if causal else {}
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.key.to("npu"),
        **batch.arguments(input_layout=layout, actual_seq_lengths=[1, 4], **mask),
    )
    expected = batch.reference(causal=causal)
    close(conformance, output, expected.transpose(0, 1) if layout == "TND_NTD" else expected, 200)


def test_parts_of_one_query_are_made_contiguous() -> None:
    batch = Latent([1, 3], [40, 200])
    whole = torch.cat([batch.query, batch.query_rope], -1).to("npu")
    views = torch.split(whole, [LATENT, ROPE], -1)
    assert not any(view.is_contiguous() for view in views)
    outputs = [
        torch_npu.npu_fused_infer_attention_score(
            query,
            batch.key.to("npu"),
            batch.key.to("npu"),
            **batch.arguments(query_rope=rope, input_layout="TND", actual_seq_lengths=[1, 4]),
        )[0]
        for query, rope in (views, [view.contiguous() for view in views])
    ]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("layout", ["BSND", "BNSD", "BSH", "BNSD_NBSD", "BSND_NBSD", "BSH_NBSD"])
@pytest.mark.parametrize("second", [False, True])
def test_batch_decodes_over_latent_pages(conformance: Any, layout: str, second: bool) -> None:
    batch = Latent([1, 1, 1], [1, 128, 300])
    inside, _, outside = layout.partition("_")

    def laid_out(tensor: torch.Tensor, name: str) -> torch.Tensor:
        whole = tensor.unsqueeze(1)  # [B, 1, N, D]
        orders = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "NBSD": (2, 0, 1, 3)}
        return whole.flatten(2) if name == "BSH" else whole.permute(orders[name]).contiguous()

    inputs = [laid_out(batch.query, inside), batch.key, batch.key]
    arguments = batch.arguments(
        query_rope=laid_out(batch.query_rope, inside).to("npu"), input_layout=layout
    )
    if second:
        names = {
            "num_heads": "num_query_heads",
            "scale": "softmax_scale",
            "actual_seq_lengths_kv": "actual_seq_kvlen",
        }
        output, _ = torch_npu.npu_fused_infer_attention_score_v2(
            *(t.to("npu") for t in inputs), **{names.get(n, n): v for n, v in arguments.items()}
        )
    else:
        output, _ = torch_npu.npu_fused_infer_attention_score(
            *(t.to("npu") for t in inputs), **arguments
        )
    close(conformance, output, laid_out(batch.reference(), outside or inside), 300)


def test_heads_before_tokens_in_the_latent_pages(conformance: Any) -> None:
    batch = Latent([1, 1], [5, 200])
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"),
        batch.key.unsqueeze(1).to("npu"),
        batch.key.unsqueeze(1).to("npu"),
        **batch.arguments(
            key_rope=batch.key_rope.unsqueeze(1).to("npu"),
            input_layout="TND",
            actual_seq_lengths=[1, 2],
        ),
    )
    close(conformance, output, batch.reference(), 200)


@pytest.mark.parametrize("layout", ["TND", "NTD_TND"])
def test_prefill_takes_rotary_parts_of_every_head(conformance: Any, layout: str) -> None:
    lengths, total, dtype = [3, 9], 12, torch.bfloat16
    query, key, value = (random(total, 4, 128, seed=s, dtype=dtype) for s in (1, 2, 3))
    query_rope, key_rope = (random(total, 4, ROPE, seed=s, dtype=dtype) for s in (4, 5))

    def laid_out(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.transpose(0, 1) if layout == "NTD_TND" else tensor).contiguous().to("npu")

    output, _ = torch_npu.npu_fused_infer_attention_score(
        *(laid_out(t) for t in (query, key, value)),
        query_rope=laid_out(query_rope),
        key_rope=laid_out(key_rope),
        actual_seq_lengths=[3, 12],
        actual_seq_lengths_kv=[3, 12],
        num_heads=4,
        num_key_value_heads=4,
        scale=0.07,
        input_layout=layout,
        sparse_mode=3,
        atten_mask=CAUSAL.to("npu"),
    )
    parts = zip(
        torch.split(torch.cat([query, query_rope], -1), lengths),
        torch.split(torch.cat([key, key_rope], -1), lengths),
        torch.split(value, lengths),
        strict=True,
    )
    expected = torch.cat([attend(q, k, v, 0.07, causal=True) for q, k, v in parts])
    close(conformance, output, expected, 12)


def test_refused_rotary_part_is_named() -> None:
    batch = Latent([1, 1], [5, 20])
    changed: list[tuple[str, dict[str, Any]]] = [
        ("expected both rotary parts or none", {"key_rope": None}),
        ("argument 'queryRope': expected shape", {"query_rope": batch.query_rope[..., :32]}),
        ("argument 'queryRope': expected bfloat16", {"query_rope": batch.query_rope.half()}),
        ("argument 'keyRope': expected shape", {"key_rope": batch.key_rope[..., :32]}),
        ("argument 'sparseMode': expected 0, 3 or 4", {"sparse_mode": 2, "atten_mask": CAUSAL}),
    ]
    for text, change in changed:
        moved = {
            name: value.contiguous().to("npu") if isinstance(value, torch.Tensor) else value
            for name, value in change.items()
        }
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_fused_infer_attention_score(
                *(t.to("npu") for t in (batch.query, batch.key, batch.key)),
                **batch.arguments(input_layout="TND", actual_seq_lengths=[1, 2], **moved),
            )
    query = batch.query.transpose(0, 1).contiguous().to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'inputLayout': expected one that the device"):
        torch_npu.npu_fused_infer_attention_score(
            query,
            batch.key.to("npu"),
            batch.key.to("npu"),
            **batch.arguments(
                query_rope=batch.query_rope.transpose(0, 1).contiguous().to("npu"),
                input_layout="NTD",
                actual_seq_lengths=[1, 2],
            ),
        )
