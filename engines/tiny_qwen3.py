"""A Qwen3 checkpoint of random weights, small enough for a simulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 512


def write_checkpoint(folder: Path, *, num_layers: int, dtype: torch.dtype, seed: int = 0) -> None:
    """Write a checkpoint that does not give the same token again and again.

    Args:
        folder: Is made.
        num_layers: Of the model.
        dtype: Of the weights.
        seed: Of the weights.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        # Attention has to decide the token, or wrong lengths would not be seen.
        initializer_range=0.2,
    )
    Qwen3ForCausalLM(config).to(dtype).save_pretrained(folder)
