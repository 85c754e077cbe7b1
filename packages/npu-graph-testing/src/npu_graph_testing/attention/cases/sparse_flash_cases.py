"""Ways to call sparse flash attention, whose lengths and selection a step writes on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_testing.attention.cases.attention_case import (
    BLOCK_SIZE,
    BLOCKS,
    COLUMNS,
    HEADS,
    LONGEST,
    AttentionCase,
    integers,
)
from npu_graph_testing.attention.cases.fused_infer_cases import int8_tensor
from npu_graph_testing.attention.cases.latent_cases import LATENT_DIM, ROPE_DIM

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel

CHOSEN = 6
_TILE = 128


def paged_lengths(model: CaseModel, key: int, *, keys: str) -> dict[str, object]:
    """Return a block table and lengths: one query token and one key of each sequence.

    `keys` is the argument that takes the lengths of keys.
    """
    return {
        "block_table": integers(model, [0] * (key * COLUMNS), key, COLUMNS),
        "actual_seq_lengths_query": integers(model, list(range(1, key + 1)), key),
        keys: integers(model, [1] * key, key),
    }


def _shared(model: CaseModel, key: int) -> dict[str, object]:
    return {
        "query": model.random(key, HEADS, LATENT_DIM),
        "query_rope": model.random(key, HEADS, ROPE_DIM),
        "sparse_indices": integers(model, [-1] * (key * CHOSEN), key, 1, CHOSEN),
        **paged_lengths(model, key, keys="actual_seq_lengths_kv"),
        "scale_value": (LATENT_DIM + ROPE_DIM) ** -0.5,
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        "attention_mode": 2,
    }


def _layer(model: CaseModel) -> dict[str, object]:
    latent = model.random(BLOCKS, BLOCK_SIZE, 1, LATENT_DIM)
    rope = model.random(BLOCKS, BLOCK_SIZE, 1, ROPE_DIM)
    return {"key": latent, "value": latent, "key_rope": rope}


def _shared_quantised(model: CaseModel, key: int) -> dict[str, object]:
    shared = _shared(model, key)
    del shared["query_rope"]
    query = model.random(key, HEADS, LATENT_DIM + ROPE_DIM)
    return {**shared, "query": query, "key_quant_mode": 2, "value_quant_mode": 2}


def _layer_quantised(model: CaseModel) -> dict[str, object]:
    latent = int8_tensor(model, (BLOCKS, BLOCK_SIZE, LATENT_DIM))
    rope = model.random(BLOCKS, BLOCK_SIZE, ROPE_DIM)
    scales = model.random(BLOCKS, BLOCK_SIZE, LATENT_DIM // _TILE, dtype=torch.float32).abs() / 64
    # A row is the latent key in int8, the rotary part, and the scales of its tiles.
    parts = [latent.cpu(), rope.cpu().view(torch.int8), scales.cpu().view(torch.int8)]
    rows = torch.cat(parts, -1).unsqueeze(2).to(model.device.torch_device)
    return {"key": rows, "value": rows}


def _written(random: Random, model: CaseModel, key: int) -> dict[str, torch.Tensor]:
    lengths = [random.randint(1, LONGEST) for _ in range(key)]
    chosen = []
    for length in lengths:
        own = random.sample(range(length), min(length, CHOSEN))
        chosen += own + [-1] * (CHOSEN - len(own))
    return {
        "actual_seq_lengths_kv": integers(model, lengths, key),
        "sparse_indices": integers(model, chosen, key, 1, CHOSEN),
    }


def sparse_flash_cases() -> list[AttentionCase]:
    """Return all of them."""
    return [
        AttentionCase(name=name, kind_name=kind, shared=shared, layer=layer, written=_written)
        for name, kind, shared, layer in (
            ("sparse flash", "sparse_flash_attention", _shared, _layer),
            (
                "sparse flash int8",
                "kv_quant_sparse_flash_attention",
                _shared_quantised,
                _layer_quantised,
            ),
        )
    ]
