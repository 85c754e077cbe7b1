"""Which tensors of a checkpoint make up each weight of the model.

The model holds fused weights: one matrix for query, key and value, one for gate and up. Each is
the concatenation by rows of tensors of the checkpoint, written once at loading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3_engine.qwen3.model_config import Qwen3Config


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSource:
    """The parts of one weight.

    Attributes:
        parts: names and shapes of checkpoint tensors, in the order of concatenation by rows.
    """

    parts: tuple[tuple[str, tuple[int, ...]], ...]


def weight_sources(config: Qwen3Config) -> dict[str, WeightSource]:
    """Return the sources of every parameter of `Qwen3Model`, by name."""
    hidden, vocab = config.hidden_size, config.vocab_size
    sources = {
        "embedding": _source(("model.embed_tokens.weight", (vocab, hidden))),
        "final_norm": _source(("model.norm.weight", (hidden,))),
    }
    if not config.tie_word_embeddings:
        sources["lm_head"] = _source(("lm_head.weight", (vocab, hidden)))
    for index in range(config.num_layers):
        for name, source in _layer_sources(config, f"model.layers.{index}").items():
            sources[f"layers.{index}.{name}"] = source
    return sources


def _source(*parts: tuple[str, tuple[int, ...]]) -> WeightSource:
    return WeightSource(parts=parts)


def _layer_sources(config: Qwen3Config, prefix: str) -> dict[str, WeightSource]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size, head = config.q_size, config.kv_size, config.head_dim
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    return {
        "input_norm": _source((f"{prefix}.input_layernorm.weight", (hidden,))),
        "qkv": _source(
            (f"{attention}.q_proj.weight", (q_size, hidden)),
            (f"{attention}.k_proj.weight", (kv_size, hidden)),
            (f"{attention}.v_proj.weight", (kv_size, hidden)),
        ),
        "q_norm": _source((f"{attention}.q_norm.weight", (head,))),
        "k_norm": _source((f"{attention}.k_norm.weight", (head,))),
        "output": _source((f"{attention}.o_proj.weight", (hidden, q_size))),
        "post_attention_norm": _source((f"{prefix}.post_attention_layernorm.weight", (hidden,))),
        "gate_up": _source(
            (f"{mlp}.gate_proj.weight", (inner, hidden)),
            (f"{mlp}.up_proj.weight", (inner, hidden)),
        ),
        "down": _source((f"{mlp}.down_proj.weight", (hidden, inner))),
    }
