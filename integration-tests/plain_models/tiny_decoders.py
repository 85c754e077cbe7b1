"""Decoders of transformers, small enough for the simulator."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

if TYPE_CHECKING:
    from collections.abc import Mapping

NUM_LAYERS = 2
# The other implementations of experts read on the host how many tokens each one has.
_EXPERTS = MappingProxyType(
    {
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "experts_implementation": "batched_mm",
    }
)
# Transformers' name of each kind, and its sizes that others do not have.
DECODERS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "qwen3": {},
        "llama": {},
        "gemma3_text": {},
        "qwen3_moe": _EXPERTS,
        "glm4": {},
        "phi3": {},
    }
)


class TinyDecoder(torch.nn.Module):
    """A decoder with random weights, norms included, that returns logits."""

    def __init__(self, kind: str, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = AutoConfig.for_model(
            kind,
            vocab_size=64,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=64,
            initializer_range=0.1,
            pad_token_id=0,
            **DECODERS[kind],
        )
        model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
        self.model = model.eval().to(dtype)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits
