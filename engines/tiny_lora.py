"""A LoRA adapter of random weights for the tiny Qwen3, and the checkpoint that it makes of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from pathlib import Path

RANK = 128
"""From here on the engine computes adapters by operators of torch; below, by its own kernels."""
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_adapter(checkpoint: Path, folder: Path, merged: Path, *, seed: int) -> None:
    """Write an adapter that changes the tokens, and a checkpoint into which it is merged.

    Args:
        checkpoint: Of the model.
        folder: Of the adapter; is made.
        merged: Of the merged checkpoint, in float32; is made.
        seed: Of the weights.
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] not in TARGETS:
            continue
        rows, columns = layer.weight.shape
        a = (0.1 * torch.randn(RANK, columns, generator=draw)).bfloat16()
        b = (0.1 * torch.randn(rows, RANK, generator=draw)).bfloat16()
        weights[f"base_model.model.{name}.lora_A.weight"] = a
        weights[f"base_model.model.{name}.lora_B.weight"] = b
        layer.weight.data += b.float() @ a.float()
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(checkpoint),
        "r": RANK,
        "lora_alpha": RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1))
    model.save_pretrained(merged)
