"""A DFlash draft of random weights for the tiny Qwen3 checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from engines.models.tiny_eagle3 import EMBEDDINGS
from engines.models.tiny_qwen3 import VOCABULARY
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 128, 4, 2, 128
TARGET_LAYERS = (0, 1, 2)
"""Layers of the target whose outputs the draft reads; the target has four."""
MASK = VOCABULARY - 1
"""The token that stands for each token to be drafted."""

# How strongly attention prefers the newest tokens.
SHARPNESS = 3.0


def write_draft(folder: Path, *, dtype: torch.dtype, target: Path, seed: int = 7) -> None:
    """Write the draft's checkpoint, in the form in which DFlash's are published.

    Attention decides the drafts, and the newest tokens have most of its weight: a draft is a token
    whose embedding is near to theirs. Random targets repeat themselves, so some drafts are right.

    Args:
        folder: Created.
        dtype: Dtype of the weights.
        target: Checkpoint of the target.
        seed: Seed of the weights.
    """
    folder.mkdir()
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": True,
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).rpartition(".")[2],
        "dflash_config": {"target_layer_ids": list(TARGET_LAYERS), "mask_token_id": MASK},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    torch.manual_seed(seed)
    weights = {"fc.weight": torch.eye(HIDDEN, len(TARGET_LAYERS) * HIDDEN)}
    weights |= {f"{name}.weight": torch.ones(HIDDEN) for name in ("hidden_norm", "norm")}
    for number in range(LAYERS):
        made = make_layer()
        weights |= {f"layers.{number}.{name}": made[name] for name in made}
    embeddings = load_file(target / "model.safetensors")[EMBEDDINGS].float()
    # Small even where it is normalised, or drafts that stand beside it would follow it.
    embeddings[MASK] *= 1e-4
    weights |= {"embed_tokens.weight": embeddings, "lm_head.weight": embeddings.clone()}
    save_file(
        {name: each.to(dtype).contiguous() for name, each in weights.items()},
        str(folder / "model.safetensors"),
    )


def make_layer() -> dict[str, torch.Tensor]:
    """Return the weights of a layer."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    made = {
        f"{name}.weight": 0.05 * torch.randn(shape)
        for name, shape in (
            ("self_attn.q_proj", (queries, HIDDEN)),
            ("self_attn.k_proj", (keys, HIDDEN)),
            ("mlp.gate_proj", (INTERMEDIATE, HIDDEN)),
            ("mlp.up_proj", (INTERMEDIATE, HIDDEN)),
            ("mlp.down_proj", (HIDDEN, INTERMEDIATE)),
        )
    }
    # A head's value is the token's state, and the layer adds those of all heads.
    own = torch.eye(HEAD_DIM, HIDDEN)
    return made | {
        # Queries and keys that are nearly one vector: their positions decide their product.
        "self_attn.q_proj.bias": torch.ones(queries),
        "self_attn.k_proj.bias": torch.ones(keys),
        "self_attn.q_norm.weight": torch.full((HEAD_DIM,), SHARPNESS),
        "self_attn.k_norm.weight": torch.ones(HEAD_DIM),
        "self_attn.v_proj.weight": own.repeat(KV_HEADS, 1),
        "self_attn.v_proj.bias": torch.zeros(keys),
        "self_attn.o_proj.weight": own.T.repeat(1, HEADS),
        "self_attn.o_proj.bias": torch.zeros(HIDDEN),
        "input_layernorm.weight": torch.ones(HIDDEN),
        "post_attention_layernorm.weight": torch.ones(HIDDEN),
    }
