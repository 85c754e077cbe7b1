"""A Mistral checkpoint of random weights, whose attention looks back no further than a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from engines.models.tiny_qwen3 import VOCABULARY
from transformers import MistralConfig, MistralForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 64
"""Most prompts of the load are longer."""


def write_checkpoint(
    folder: Path, *, num_layers: int, dtype: torch.dtype, window: int = WINDOW, seed: int = 0
) -> None:
    """Write a checkpoint that does not generate the same token forever.

    Args:
        folder: Created.
        num_layers: Number of the model's layers.
        dtype: Dtype of the weights.
        window: Tokens that a token sees, itself included.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=1024,
        sliding_window=window,
        tie_word_embeddings=False,
        # Attention has to decide the token, or wrong lengths would not be seen.
        initializer_range=0.2,
    )
    MistralForCausalLM(config).to(dtype).save_pretrained(folder)
