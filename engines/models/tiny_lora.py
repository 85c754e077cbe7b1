"""Adapters (LoRA) of random weights for a tiny Qwen3, and checkpoints that they are added into."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_adapter(model: Path, folder: Path, merged: Path, *, rank: int, seed: int) -> None:
    """Write an adapter in PEFT's format, and the model with it added.

    Args:
        model: The checkpoint.
        folder: Of the adapter; is made.
        merged: Of the model with it; is made.
        rank: Of the adapter.
        seed: Of its weights.
    """
    folder.mkdir()
    shutil.copytree(model, merged)
    draw = torch.Generator().manual_seed(seed)
    tensors, whole = {}, load_file(model / "model.safetensors")
    scaling = 2.0
    for name, weight in whole.items():
        layer = name.removesuffix(".weight")
        if layer.rpartition(".")[2] in ADAPTED:
            rows, columns = weight.shape
            # Large enough that other tokens are the likeliest.
            first = 0.1 * torch.randn(rank, columns, generator=draw)
            second = 0.1 * torch.randn(rows, rank, generator=draw)
            first, second = first.to(weight.dtype), second.to(weight.dtype)
            tensors[f"base_model.model.{layer}.lora_A.weight"] = first
            tensors[f"base_model.model.{layer}.lora_B.weight"] = second
            added = scaling * (second.float() @ first.float())
            # Unrounded: transformers reads it in float32.
            whole[name] = weight.float() + added
    save_file(tensors, folder / "adapter_model.safetensors")
    save_file(whole, merged / "model.safetensors", {"format": "pt"})
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": scaling * rank,
        "target_modules": list(ADAPTED),
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(described))
