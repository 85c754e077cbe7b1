"""A DeepSeek-V3 checkpoint of random weights, small enough for a simulated device.

Its attention is latent (MLA), with the sizes of rank and rotary part that the NPU's operators take.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from engines.models.tiny_eagle3 import EMBEDDINGS
from engines.models.tiny_qwen3 import VOCABULARY
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

# As in `tiny_eagle3`, for this attention's contribution.
OWN_TOKEN = 8.0


def write_checkpoint(
    folder: Path,
    *,
    num_layers: int,
    dtype: torch.dtype,
    num_heads: int = 4,
    has_experts: bool = False,
    seed: int = 0,
) -> None:
    """Write a checkpoint that does not generate the same token forever.

    Args:
        folder: Created.
        num_layers: Number of the model's layers.
        dtype: Dtype of the weights.
        num_heads: Attention heads; the engine pads a number that is not a power of two.
        has_experts: Whether all layers but the first choose among eight experts, in two groups.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    config = DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        first_k_dense_replace=1 if has_experts else num_layers,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=64,
        # What transformers takes for granted, and the engines read.
        moe_layer_freq=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
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


def add_draft(folder: Path, *, dtype: torch.dtype, seed: int = 7) -> None:
    """Add a drafting layer (MTP) to a checkpoint, after its last layer, as DeepSeek's has.

    About every second draft is the previous token; see `tiny_eagle3.write_draft`.

    Args:
        folder: Folder of a checkpoint without experts.
        dtype: Dtype of its weights.
        seed: Seed of the layer's weights.
    """
    write_checkpoint(folder / "draft", num_layers=1, dtype=dtype, seed=seed)
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    number, hidden = config["num_hidden_layers"], config["hidden_size"]
    config |= {"num_nextn_predict_layers": 1, "first_k_dense_replace": number + 1}
    layer, own = f"model.layers.{number}.", torch.zeros(hidden, 2 * hidden)
    own[:, :hidden].fill_diagonal_(OWN_TOKEN)
    weights |= {
        name.replace("model.layers.0.", layer): weight
        for name, weight in load_file(folder / "draft" / "model.safetensors").items()
        if name.startswith("model.layers.0.")
    }
    for name in ("enorm", "hnorm", "shared_head.norm"):
        weights[f"{layer}{name}.weight"] = torch.ones(hidden, dtype=dtype)
    weights[f"{layer}eh_proj.weight"] = own.to(dtype)
    # Not the tensors themselves: two of one memory are not saved.
    for name in ("embed_tokens", "shared_head.head"):
        weights[f"{layer}{name}.weight"] = weights[EMBEDDINGS].clone()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
