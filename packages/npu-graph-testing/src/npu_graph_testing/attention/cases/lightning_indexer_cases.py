"""Ways to call lightning indexers, whose lengths a step writes on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_testing.attention.cases.attention_case import (
    BLOCK_SIZE,
    BLOCKS,
    LONGEST,
    AttentionCase,
    integers,
)
from npu_graph_testing.attention.cases.fused_infer_cases import int8_tensor
from npu_graph_testing.attention.cases.sparse_flash_cases import CHOSEN, paged_lengths

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel

_HEADS, _DIM = 8, 128


def _shared(model: CaseModel, key: int) -> dict[str, object]:
    return {
        "query": model.random(key, _HEADS, _DIM),
        "weights": model.random(key, _HEADS),
        **paged_lengths(model, key, keys="actual_seq_lengths_key"),
        "layout_query": "TND",
        "layout_key": "PA_BSND",
        "sparse_count": CHOSEN,
    }


def _shared_quantised(model: CaseModel, key: int) -> dict[str, object]:
    return {
        **_shared(model, key),
        "query": int8_tensor(model, (key, _HEADS, _DIM)),
        "weights": model.random(key, _HEADS, dtype=torch.float16),
        "query_dequant_scale": model.random(key, _HEADS, dtype=torch.float16).abs(),
        "query_quant_mode": 0,
        "key_quant_mode": 0,
    }


def _layer(model: CaseModel) -> dict[str, object]:
    return {"key": model.random(BLOCKS, BLOCK_SIZE, 1, _DIM)}


def _layer_quantised(model: CaseModel) -> dict[str, object]:
    scale = model.random(BLOCKS, BLOCK_SIZE, 1, dtype=torch.float16).abs()
    keys = int8_tensor(model, (BLOCKS, BLOCK_SIZE, 1, _DIM))
    return {"key": keys, "key_dequant_scale": scale}


def _written(random: Random, model: CaseModel, key: int) -> dict[str, torch.Tensor]:
    # With no more keys than are chosen, only their order could differ.
    lengths = [random.randint(CHOSEN + 1, LONGEST) for _ in range(key)]
    return {"actual_seq_lengths_key": integers(model, lengths, key)}


def lightning_indexer_cases() -> list[AttentionCase]:
    """Return all of them."""
    return [
        AttentionCase(name=name, kind_name=kind, shared=shared, layer=layer, written=_written)
        for name, kind, shared, layer in (
            ("lightning indexer", "lightning_indexer", _shared, _layer),
            (
                "lightning indexer int8",
                "quant_lightning_indexer",
                _shared_quantised,
                _layer_quantised,
            ),
        )
    ]
