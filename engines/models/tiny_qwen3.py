"""A Qwen3 or Qwen3-MoE checkpoint of random weights, small enough for a simulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 512


EXPERTS = {
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}


def write_checkpoint(
    folder: Path,
    *,
    num_layers: int,
    dtype: torch.dtype,
    num_kv_heads: int = 2,
    has_experts: bool = False,
    width: int = 64,
    seed: int = 0,
) -> None:
    """Write a checkpoint that does not generate the same token forever.

    Args:
        folder: Created.
        num_layers: Number of the model's layers.
        dtype: Dtype of the weights.
        num_kv_heads: Heads of keys and values, of four heads of queries.
        has_experts: Whether all layers choose among eight experts.
        width: Of a token between the layers.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": num_kv_heads,
        "head_dim": 128,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        # Attention has to decide the token, or wrong lengths would not be seen.
        "initializer_range": 0.2,
    }
    model = (
        Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **EXPERTS))
        if has_experts
        else Qwen3ForCausalLM(Qwen3Config(**sizes))
    )
    model.to(dtype).save_pretrained(folder)
