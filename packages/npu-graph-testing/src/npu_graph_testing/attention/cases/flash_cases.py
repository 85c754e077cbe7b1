"""Ways to call flash attention v3: ragged queries and keys of their own lengths."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from npu_graph_testing.attention.cases.attention_case import HEAD_DIM, HEADS, AttentionCase

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step

TOKENS, KEY_TOKENS = 24, 40
_MASK_SIDE = 2048


def flash_cases() -> list[AttentionCase]:
    """Return all of them: every key, and keys up to the query's position."""
    return [
        AttentionCase(
            name=name,
            kind_name="flash_attention_v3",
            shared=partial(_shared, causal=causal),
            layer=_layer,
            captured=_captured,
            draw=_draw,
        )
        for name, causal in (("flash v3", False), ("flash v3 causal", True))
    ]


def _shared(model: CaseModel, key: int, *, causal: bool) -> dict[str, object]:
    del key
    shared: dict[str, object] = {
        "query": model.random(TOKENS, HEADS, HEAD_DIM),
        "input_layout": "TND",
        "head_num": HEADS,
        "scale": HEAD_DIM**-0.5,
    }
    if causal:
        mask = torch.ones(_MASK_SIDE, _MASK_SIDE, dtype=torch.bool).triu(1)
        shared |= {"atten_mask": mask.to(model.device.torch_device), "sparse_mode": 3}
    return shared


def _layer(model: CaseModel) -> dict[str, object]:
    return {name: model.random(KEY_TOKENS, HEADS, HEAD_DIM) for name in ("key", "value")}


def _step(query_ends: list[int], key_ends: list[int]) -> Step:
    return {"actual_seq_qlen": query_ends, "actual_seq_kvlen": key_ends}


def _captured(model: CaseModel, key: int) -> Step:
    del model
    return _step(
        [TOKENS * (index + 1) // key for index in range(key)],
        [KEY_TOKENS * (index + 1) // key for index in range(key)],
    )


def _draw(random: Random, model: CaseModel, key: int) -> Step:
    del model
    query_ends = [*sorted(random.randint(0, TOKENS) for _ in range(key - 1)), TOKENS]
    # Each sequence has as many keys as queries or more.
    spare = sorted(random.randint(0, KEY_TOKENS - TOKENS) for _ in range(key))
    return _step(query_ends, [end + more for end, more in zip(query_ends, spare, strict=True)])
