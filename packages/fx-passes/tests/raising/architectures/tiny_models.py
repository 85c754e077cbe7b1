"""Models of every decoder architecture of transformers, small enough for the simulator."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.nn import Module
    from transformers import PretrainedConfig

__all__ = ["decoder_kinds", "tiny_model"]

MOST_PARAMETERS = 5_000_000
SIZES = {
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "word_embed_proj_dim": 64,
    "dim": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "ffn_dim": 128,
    "n_inner": 128,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What the sizes above do not fit.
OWN_SIZES: dict[str, dict[str, object]] = {
    "codegen": {"rotary_dim": 8},
    "dots1": {"n_shared_experts": 1},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
}


def decoder_kinds() -> Iterator[str]:
    """Yield the kind of each language model of transformers that is a decoder, once.

    Multimodal models are listed by the kind of their decoder. Encoders that can be used as decoders
    (BERT) and the decoders of pairs (BART) are left out.
    """
    seen: set[str] = set()
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        config = CONFIG_MAPPING[name]
        try:
            given = config()
            kind = given.get_text_config(decoder=True).model_type
        except Exception:  # noqa: BLE001 - the defaults of some do not pass their own checks
            continue
        fields = {each.name for each in dataclasses.fields(config)}
        if "is_decoder" in fields or getattr(given, "is_encoder_decoder", False):
            continue
        if kind not in seen:
            seen.add(kind)
            yield kind


def tiny_config(kind: str, **settings: object) -> PretrainedConfig:
    """Return a tiny configuration of a kind of model."""
    config = CONFIG_MAPPING[kind]
    fields = {each.name for each in dataclasses.fields(config)}
    known = fields | {each for each, own in config.attribute_map.items() if own in fields}
    sizes: dict[str, Any] = {name: size for name, size in SIZES.items() if name in known}
    if "kv_lora_rank" in fields:
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    given: PretrainedConfig = AutoConfig.for_model(
        kind, **{**sizes, **OWN_SIZES.get(kind, {}), **settings}
    )
    return given


def tiny_model(kind: str, **settings: object) -> Module:
    """Return a tiny model in float32 on the CPU, its norms and biases random as all else.

    Raises:
        ValueError: The sizes do not make it tiny.
    """
    torch.manual_seed(0)
    config = tiny_config(kind, **settings)
    with torch.device("meta"):
        shape: Module = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    count = sum(each.numel() for each in shape.parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count} parameters")
    model: Module = AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model
