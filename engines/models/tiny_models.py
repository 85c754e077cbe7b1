"""The checkpoints of the sessions' models, by the name that a session uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from engines.models.quantised_checkpoint import Scheme

SCHEMES: tuple[Scheme, ...] = ("W8A8", "W8A8_DYNAMIC")


class Described(Protocol):
    """A variant's description of its model."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def dtype(self) -> str:
        """Of the model."""

    @property
    def num_layers(self) -> int:
        """Of the model."""


def write_model(variant: Described, folder: Path) -> None:
    """Write the checkpoint of a variant's model."""
    import torch
    from engines.models import tiny_deepseek, tiny_mistral, tiny_qwen3

    given: dict[str, Any] = {
        "num_layers": variant.num_layers,
        "dtype": getattr(torch, variant.dtype),
    }
    scheme = scheme_of(variant.model)
    if scheme is not None:
        from engines.models.quantised_checkpoint import quantise_checkpoint

        source = folder.with_name(f"{folder.name}-float")
        tiny_qwen3.write_checkpoint(source, has_experts="MoE" in variant.model, **given)
        quantise_checkpoint(source, folder, scheme)
    elif variant.model.startswith("Qwen3"):
        # Each of two ranks has to hold the same head of keys, if it is to hold a part of them.
        heads = 1 if "CP" in variant.model else 2
        given |= {"num_kv_heads": heads, "has_experts": "MoE" in variant.model}
        tiny_qwen3.write_checkpoint(folder, width=256 if "wide" in variant.model else 64, **given)
    elif variant.model.startswith("Mistral"):
        tiny_mistral.write_checkpoint(folder, **given)
    else:
        heads = 3 if "3 heads" in variant.model else 4
        has_experts = "experts" in variant.model
        tiny_deepseek.write_checkpoint(folder, num_heads=heads, has_experts=has_experts, **given)


def scheme_of(model: str) -> Scheme | None:
    """Return how a model is quantised; None where it is not."""
    return next((scheme for scheme in SCHEMES if model.endswith(f", {scheme}")), None)
