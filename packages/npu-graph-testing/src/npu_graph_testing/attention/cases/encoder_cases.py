"""Ways to call encoder attention: a graph key is a number of sequences in one budget of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_graph_testing.attention.cases.attention_case import HEAD_DIM, HEADS, AttentionCase

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step

TOKENS = 24


def _shared(model: CaseModel, key: int) -> dict[str, object]:
    del key
    return {
        "query": model.random(TOKENS, HEADS, HEAD_DIM),
        "input_layout": "TND",
        "num_heads": HEADS,
        "num_key_value_heads": HEADS,
        "scale": HEAD_DIM**-0.5,
    }


def _layer(model: CaseModel) -> dict[str, object]:
    return {name: model.random(TOKENS, HEADS, HEAD_DIM) for name in ("key", "value")}


def _step(ends: list[int]) -> Step:
    return {"actual_seq_lengths": ends, "actual_seq_lengths_kv": ends}


def _captured(model: CaseModel, key: int) -> Step:
    del model
    return _step([TOKENS * (index + 1) // key for index in range(key)])


def _draw(random: Random, model: CaseModel, key: int) -> Step:
    del model
    return _step([*sorted(random.randint(0, TOKENS) for _ in range(key - 1)), TOKENS])


def encoder_cases() -> list[AttentionCase]:
    """Return all of them."""
    return [
        AttentionCase(
            name="encoder",
            kind_name="encoder_attention",
            shared=_shared,
            layer=_layer,
            captured=_captured,
            draw=_draw,
        )
    ]
