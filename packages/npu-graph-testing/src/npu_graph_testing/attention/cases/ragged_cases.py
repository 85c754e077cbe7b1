"""Ways to call attention over ragged sequences: that of encoders, and flash attention v3.

A graph key is a number of sequences in one budget of tokens.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from npu_graph_testing.attention.cases.attention_case import HEAD_DIM, HEADS, AttentionCase
from npu_graph_testing.attention.cases.fused_infer_cases import causal as causal_arguments

if TYPE_CHECKING:
    from random import Random

    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step

TOKENS, KEY_TOKENS = 24, 40


def ragged_cases() -> list[AttentionCase]:
    """Return all of them: an encoder's, and flash attention of all keys and of causal ones."""
    return [
        AttentionCase(
            name="encoder",
            kind_name="encoder_attention",
            shared=_shared_encoder,
            layer=partial(_layer, tokens=TOKENS),
            captured=lambda _, key: _encoder_step(_even(TOKENS, key)),
            draw=lambda random, _, key: _encoder_step(_drawn(random, key)),
        ),
        *(
            AttentionCase(
                name=name,
                kind_name="flash_attention_v3",
                shared=partial(_shared_flash, causal=causal),
                layer=partial(_layer, tokens=KEY_TOKENS),
                captured=lambda _, key: _flash_step(_even(TOKENS, key), _even(KEY_TOKENS, key)),
                draw=_draw_flash,
            )
            for name, causal in (("flash v3", False), ("flash v3 causal", True))
        ),
    ]


def _shared(model: CaseModel) -> dict[str, object]:
    query = model.random(TOKENS, HEADS, HEAD_DIM)
    return {"query": query, "input_layout": "TND", "scale": HEAD_DIM**-0.5}


def _shared_encoder(model: CaseModel, key: int) -> dict[str, object]:
    del key
    return {**_shared(model), "num_heads": HEADS, "num_key_value_heads": HEADS}


def _shared_flash(model: CaseModel, key: int, *, causal: bool) -> dict[str, object]:
    shared = {**_shared(model), "head_num": HEADS}
    return shared | (causal_arguments(model, key) if causal else {})


def _layer(model: CaseModel, *, tokens: int) -> dict[str, object]:
    return {name: model.random(tokens, HEADS, HEAD_DIM) for name in ("key", "value")}


def _even(tokens: int, key: int) -> list[int]:
    return [tokens * (index + 1) // key for index in range(key)]


def _drawn(random: Random, key: int) -> list[int]:
    return [*sorted(random.randint(0, TOKENS) for _ in range(key - 1)), TOKENS]


def _encoder_step(ends: list[int]) -> Step:
    return {"actual_seq_lengths": ends, "actual_seq_lengths_kv": ends}


def _flash_step(query_ends: list[int], key_ends: list[int]) -> Step:
    return {"actual_seq_qlen": query_ends, "actual_seq_kvlen": key_ends}


def _draw_flash(random: Random, model: CaseModel, key: int) -> Step:
    del model
    query_ends = _drawn(random, key)
    # Each sequence has as many keys as queries or more.
    spare = sorted(random.randint(0, KEY_TOKENS - TOKENS) for _ in range(key))
    key_ends = [end + more for end, more in zip(query_ends, spare, strict=True)]
    return _flash_step(query_ends, key_ends)
