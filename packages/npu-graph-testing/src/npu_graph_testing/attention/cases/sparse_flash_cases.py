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
)
from npu_graph_testing.attention.cases.latent_cases import LATENT_DIM, ROPE_DIM

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step

CHOSEN = 6


def _integers(model: CaseModel, values: list[int], *shape: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32).reshape(shape).to(model.device.torch_device)


def _shared(model: CaseModel, key: int) -> dict[str, object]:
    return {
        "query": model.random(key, HEADS, LATENT_DIM),
        "query_rope": model.random(key, HEADS, ROPE_DIM),
        "sparse_indices": _integers(model, [-1] * (key * CHOSEN), key, 1, CHOSEN),
        "block_table": _integers(model, [0] * (key * COLUMNS), key, COLUMNS),
        "actual_seq_lengths_query": _integers(model, list(range(1, key + 1)), key),
        "actual_seq_lengths_kv": _integers(model, [1] * key, key),
        "scale_value": (LATENT_DIM + ROPE_DIM) ** -0.5,
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        "attention_mode": 2,
    }


def _layer(model: CaseModel) -> dict[str, object]:
    latent = model.random(BLOCKS, BLOCK_SIZE, 1, LATENT_DIM)
    rope = model.random(BLOCKS, BLOCK_SIZE, 1, ROPE_DIM)
    return {"key": latent, "value": latent, "key_rope": rope}


def _no_step(*_: object) -> Step:
    return {}


def _written(random: Random, model: CaseModel, key: int) -> dict[str, torch.Tensor]:
    lengths = [random.randint(1, LONGEST) for _ in range(key)]
    chosen = []
    for length in lengths:
        own = random.sample(range(length), min(length, CHOSEN))
        chosen += own + [-1] * (CHOSEN - len(own))
    return {
        "actual_seq_lengths_kv": _integers(model, lengths, key),
        "sparse_indices": _integers(model, chosen, key, 1, CHOSEN),
    }


def sparse_flash_cases() -> list[AttentionCase]:
    """Return all of them."""
    return [
        AttentionCase(
            name="sparse flash",
            kind_name="sparse_flash_attention",
            shared=_shared,
            layer=_layer,
            captured=_no_step,
            draw=_no_step,
            written=_written,
        )
    ]
