"""An EAGLE-3 draft of random weights for the tiny Qwen3 checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from engines.models.tiny_qwen3 import VOCABULARY
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 64, 128, 4, 2, 128
AUX_LAYERS = (0, 1, 2)
"""Layers of the target whose hidden states the draft reads; the target has four."""
EMBEDDINGS = "model.embed_tokens.weight"

# How much of the token's own embedding goes into the logits, compared with attention: enough
# that about every second draft is that token.
OWN_TOKEN = 20.0


def write_draft(
    folder: Path, *, dtype: torch.dtype, target: Path | None = None, seed: int = 7
) -> None:
    """Write the draft's checkpoint, in the form in which EAGLE-3's are published.

    Args:
        folder: Created.
        dtype: Dtype of the weights.
        target: Checkpoint of the target. The draft sometimes repeats the last token, because random
            targets repeat themselves, and nothing else about them can be predicted.
        seed: Seed of the weights.
    """
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": VOCABULARY,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).rpartition(".")[2],
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
            # The same, by the name that vLLM 0.30.0's model runner v2 reads.
            "layer_ids": list(AUX_LAYERS),
            "use_aux_hidden_state": True,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    shapes = {
        "fc.weight": (HIDDEN, len(AUX_LAYERS) * HIDDEN),
        "midlayer.self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        "midlayer.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "midlayer.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "midlayer.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    torch.manual_seed(seed)
    weights = {name: (0.2 * torch.randn(shape)).to(dtype) for name, shape in shapes.items()}
    if target is not None:
        weights["fc.weight"].zero_().diagonal().fill_(OWN_TOKEN)
        weights["lm_head.weight"] = load_file(target / "model.safetensors")[EMBEDDINGS].to(dtype)
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        weights[f"midlayer.{name}.weight"] = torch.ones(HIDDEN, dtype=dtype)
    weights["norm.weight"] = torch.ones(HIDDEN, dtype=dtype)
    # From draft tokens to those of the target: differences, so the same tokens.
    weights["d2t"] = torch.zeros(VOCABULARY, dtype=torch.int64)
    weights["t2d"] = torch.ones(VOCABULARY, dtype=torch.bool)
    save_file(weights, str(folder / "model.safetensors"))
