"""What follows a decode step inside of its graph: a token is sampled, and is the next input."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from qwen3_engine.qwen3.model import Qwen3Model


def advance_by(
    model: Qwen3Model, sampler: Callable[..., torch.Tensor], steps: int
) -> Callable[..., tuple[torch.Tensor, Mapping[str, torch.Tensor]]]:
    """Return a function that samples a token per row and makes the inputs of the next step."""

    def advance(
        step: int, inputs: Mapping[str, torch.Tensor], hidden: torch.Tensor, /
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        tokens = sampler(
            model.compute_logits(hidden),
            temperatures=inputs["temperatures"],
            seeds=inputs["seeds"],
            positions=inputs["positions"],
        )
        if step + 1 == steps:
            return tokens, {}
        return tokens, {
            "input_ids": tokens,
            "positions": inputs["positions"] + 1,
            "slot_mapping": inputs["slots"][:, step + 1].contiguous(),
        }

    return advance
