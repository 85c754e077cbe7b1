"""Ways to call ATB's paged attention: a graph key is a number of sequences of one query each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_testing.attention.cases.attention_case import (
    BLOCK_SIZE,
    BLOCKS,
    COLUMNS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LONGEST,
    AttentionCase,
    integers,
)

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step


def _shared(model: CaseModel, key: int) -> dict[str, object]:
    return {
        "query": model.random(key, HEADS, HEAD_DIM),
        "block_table": integers(
            model, [block % BLOCKS for block in range(key * COLUMNS)], -1, COLUMNS
        ),
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "scale_value": HEAD_DIM**-0.5,
    }


def _layer(model: CaseModel) -> dict[str, object]:
    shape = (BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    return {name: model.random(*shape) for name in ("key_cache", "value_cache")}


def _captured(model: CaseModel, key: int) -> Step:
    del model
    return {"context_lens": [1] * key}


def _draw(random: Random, model: CaseModel, key: int) -> Step:
    del model
    lengths = [random.randint(0, LONGEST) for _ in range(key)]
    return {"context_lens": torch.tensor(lengths, dtype=torch.int32)}


def _draw_rebound(random: Random, model: CaseModel, key: int) -> Step:
    blocks = [random.randrange(BLOCKS) for _ in range(key * COLUMNS)]
    return {**_draw(random, model, key), "block_table": integers(model, blocks, -1, COLUMNS)}


def paged_attention_cases() -> list[AttentionCase]:
    """Return all of them."""
    return [
        AttentionCase(
            name=f"paged attention{suffix}",
            kind_name=f"paged_attention{suffix.replace(' ', '_')}",
            shared=_shared,
            layer=_layer,
            captured=_captured,
            draw=draw,
        )
        for suffix, draw in (("", _draw), (" rebound", _draw_rebound))
    ]
