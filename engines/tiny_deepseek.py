"""A DeepSeek-V3 checkpoint of random weights, small enough for a simulated device.

Its attention is latent (MLA), with the sizes of rank and rotary part that the NPU's operators take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tiny_qwen3 import VOCABULARY
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

if TYPE_CHECKING:
    from pathlib import Path


def write_checkpoint(
    folder: Path, *, num_layers: int, dtype: torch.dtype, num_heads: int = 4, seed: int = 0
) -> None:
    """Write a checkpoint that does not give the same token again and again.

    Args:
        folder: Is made.
        num_layers: Of the model; all of them dense.
        dtype: Of the weights.
        num_heads: Of the attention; a number that is no power of two is padded by the engine.
        seed: Of the weights.
    """
    torch.manual_seed(seed)
    config = DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        first_k_dense_replace=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        max_position_embeddings=1024,
        # Attention has to decide the token, or wrong lengths would not be seen.
        initializer_range=0.2,
    )
    DeepseekV3ForCausalLM(config).to(dtype).save_pretrained(folder)
