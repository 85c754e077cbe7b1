"""A checkpoint of int8 weights in ModelSlim's format, converted from a float one.

It has the form that vllm-ascend reads: `quant_model_description.json` says how each weight is
stored, and each int8 weight comes with its scales. Activations are quantised per token
(`W8A8_DYNAMIC`), or by a scale and an offset determined by running the float model (`W8A8`).
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Literal

import torch
from engines.load.decode_load import compare_load
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

Scheme = Literal["W8A8_DYNAMIC", "W8A8"]
QUANTISED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LOWEST, HIGHEST = -128, 127


def quantise_checkpoint(source: Path, folder: Path, scheme: Scheme) -> None:
    """Write the quantised checkpoint.

    Args:
        source: The float checkpoint.
        folder: Created.
        scheme: As ModelSlim and vllm-ascend call it.
    """
    folder.mkdir(parents=True)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(source / name, folder / name)
    ranges = activation_ranges(source) if scheme == "W8A8" else {}
    tensors, description = {}, {}
    for name, weight in load_file(source / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if layer.rpartition(".")[2] not in QUANTISED:
            tensors[name], description[name] = weight, "FLOAT"
            continue
        parts = quantised_weight(weight)
        if scheme == "W8A8":
            parts |= static_activation(parts, *ranges[layer])
        for part, value in parts.items():
            tensors[f"{layer}.{part}"], description[f"{layer}.{part}"] = value, scheme
    save_file(tensors, folder / "model.safetensors")
    (folder / "quant_model_description.json").write_text(json.dumps(description, indent=1))


def quantised_weight(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return an int8 weight [out, in] and its scales, one per row."""
    scale = (weight.float().abs().amax(1, keepdim=True) / HIGHEST).to(weight.dtype)
    rounded = (weight.float() / scale.float()).round().clamp(LOWEST, HIGHEST)
    return {
        "weight": rounded.to(torch.int8),
        "weight_scale": scale,
        "weight_offset": torch.zeros_like(scale),
    }


def static_activation(
    parts: dict[str, torch.Tensor], least: float, most: float
) -> dict[str, torch.Tensor]:
    """Return the parameters that quantise the input of a layer and dequantise its int32 sums.

    Args:
        parts: The quantised weight.
        least: The smallest number in the layer's input.
        most: The largest one.
    """
    scale = torch.tensor([max((most - least) / (HIGHEST - LOWEST), 1e-6)])
    # As it is kept, and as the engine turns back with: rounded to the dtype of the model.
    scale = scale.to(parts["weight_scale"].dtype)
    offset = (LOWEST - least / scale.float()).round().clamp(LOWEST, HIGHEST)
    sums = parts["weight"].to(torch.int32).sum(1)
    return {
        "input_scale": scale,
        "input_offset": offset.to(torch.int8),
        "quant_bias": (-offset.to(torch.int32) * sums).to(torch.int32),
        "deq_scale": scale.float() * parts["weight_scale"].float().flatten(),
    }


def activation_ranges(source: Path) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest input of each layer, over the prompts of the load."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    found: dict[str, tuple[float, float]] = {}

    def see(name: str, given: torch.Tensor) -> None:
        least, most = found.get(name, (0.0, 0.0))
        found[name] = (min(least, given.min().item()), max(most, given.max().item()))

    for name, module in model.named_modules():
        if name.rpartition(".")[2] in QUANTISED:
            module.register_forward_pre_hook(lambda _, given, name=name: see(name, given[0]))
    with torch.inference_mode():
        for prompt in compare_load(16)[0]:
            model(torch.tensor([prompt]))
    return found
