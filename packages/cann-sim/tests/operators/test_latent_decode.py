"""Chains of operators that engines decode latent attention with, against attention in float64.

Each operator reads values that the previous one stored. The tests check that layouts agree, not the
roundings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
import torch_npu

from operators.mla_prolog_call import (
    BY_TENSOR,
    BY_TILE,
    CACHE_SCALE,
    DIM,
    HEADS,
    LATENT,
    PLAIN,
    ROPE,
    PrologCall,
    rows_scaled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS = 20
SCALE = 1 / math.sqrt(DIM + ROPE)


@pytest.fixture(autouse=True)
def _internal_formats() -> Iterator[None]:
    torch_npu.npu.config.allow_internal_format = True
    yield
    torch_npu.npu.config.allow_internal_format = False


def attention(call: PrologCall) -> torch.Tensor:
    """Return causal attention of all tokens as one sequence, of keys as the cache holds them."""
    latent, rope, _, _ = call.queries()
    key, key_rope = call.keys()
    if call.caches == BY_TENSOR:
        key = (key * CACHE_SCALE).round().clamp(-128, 127) / CACHE_SCALE
        values, size = rows_scaled(latent)
        latent = values.round() * size
    elif call.caches == BY_TILE:
        values, size = rows_scaled(key.view(TOKENS, -1, 128))
        key = (values.round() * size).view(TOKENS, LATENT)
    scores = torch.einsum("qnd,kd->qnk", latent, key) + torch.einsum("qnd,kd->qnk", rope, key_rope)
    hidden = torch.triu(torch.ones(TOKENS, TOKENS), 1).bool().unsqueeze(1)
    return torch.einsum(
        "qnk,kd->qnd", (scores * SCALE).masked_fill(hidden, -math.inf).softmax(-1), key
    )


def near(result: torch.Tensor, reference: torch.Tensor) -> None:
    """Compare by the mean square; a row that is read elsewhere is off by its whole size."""
    error = (result.cpu().double().view(reference.shape) - reference).square().mean().sqrt()
    assert error < 0.02 * reference.square().mean().sqrt(), error


def test_quantised_caches_in_nz_order_are_read_by_attention_in_int8() -> None:
    call = PrologCall(2, 2, BY_TENSOR, packed=True, tokens=TOKENS, blocks=(2, 128))
    results = call.run("PA_NZ", 128 + torch.arange(TOKENS))
    query, rope, latent, key_rope, scales = results
    output, _ = torch_npu.npu_fused_infer_attention_score_v2(
        query[-1:].view(1, 1, HEADS, LATENT),
        *[latent.view(2, 1, LATENT // 32, 128, 32)] * 2,
        query_rope=rope[-1:].view(1, 1, HEADS, ROPE),
        key_rope=key_rope.view(2, 1, ROPE // 16, 128, 16),
        block_table=torch.tensor([[1]], dtype=torch.int32).to("npu"),
        block_size=128,
        dequant_scale_query=scales[-1:].view(1, 1, HEADS),
        dequant_scale_key=torch.tensor([1 / CACHE_SCALE]).to("npu"),
        dequant_scale_value=torch.tensor([1 / CACHE_SCALE]).to("npu"),
        query_quant_mode=3,
        num_query_heads=HEADS,
        num_key_value_heads=1,
        softmax_scale=SCALE,
        input_layout="BSND_NBSD",
        actual_seq_kvlen=[TOKENS],
    )
    near(output, attention(call)[-1])


def chosen_keys(table: torch.Tensor) -> torch.Tensor:
    """Return the choice of the indexer if every visible key fits."""
    generator = torch.Generator().manual_seed(1)
    query, key = (
        torch.randn(shape, generator=generator).bfloat16().to("npu")
        for shape in ((TOKENS, 8, 128), (3, 16, 1, 128))
    )
    chosen, _ = torch_npu.npu_lightning_indexer(
        query,
        key,
        torch.randn(TOKENS, 8, generator=generator).bfloat16().to("npu"),
        actual_seq_lengths_query=torch.tensor([TOKENS]).int().to("npu"),
        actual_seq_lengths_key=torch.tensor([TOKENS]).int().to("npu"),
        block_table=table,
        layout_query="TND",
        layout_key="PA_BSND",
        sparse_count=32,
    )
    found: torch.Tensor = chosen
    return found


@pytest.mark.parametrize("weights", [0, 1])
def test_caches_are_read_by_sparse_attention_over_chosen_keys(weights: int) -> None:
    caches = BY_TILE if weights else PLAIN
    call = PrologCall(3, weights, caches, packed=True, tokens=TOKENS)
    # The sequence is in the pages 2 and 0.
    slots = torch.cat([32 + torch.arange(16), torch.arange(TOKENS - 16)])
    query, rope, latent, key_rope = call.run("PA_BSND", slots)[:4]
    table = torch.tensor([[2, 0]]).int().to("npu")
    common = {
        "block_table": table,
        "actual_seq_lengths_query": torch.tensor([TOKENS]).int().to("npu"),
        "actual_seq_lengths_kv": torch.tensor([TOKENS]).int().to("npu"),
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        "attention_mode": 2,
    }
    chosen = chosen_keys(table)
    if caches == BY_TILE:
        both = torch.cat([query, rope], -1)
        output = torch_npu.npu_kv_quant_sparse_flash_attention(
            both, latent, latent, chosen, SCALE, 2, 2, **common
        )
    else:
        output, _, _ = torch_npu.npu_sparse_flash_attention(
            query, latent, latent, chosen, SCALE, query_rope=rope, key_rope=key_rope, **common
        )
    near(output, attention(call))
