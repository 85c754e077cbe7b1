"""What follows a decode step inside of its graph: a token is sampled, and is the next input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_compile import InputSpec
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.serving.block_allocator import PADDING_BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_compile import Advance, TokenSampler
    from qwen3_engine.qwen3.model import Qwen3Model


def advance_by(model: Qwen3Model, sampler: TokenSampler, steps: int) -> Advance:
    """Return what samples a token of each row, and makes the inputs of the step behind it."""

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


def sampling_specs(steps: int) -> dict[str, InputSpec]:
    """Return what is declared beside the model's arguments: sampling, and the slots of steps."""
    padding_slot = PADDING_BLOCK * BLOCK_SIZE
    return {
        "temperatures": InputSpec(dtype=torch.float32),
        "seeds": InputSpec(dtype=torch.int64),
        "slots": InputSpec(dtype=torch.int32, trailing_shape=(steps,), pad_value=padding_slot),
    }
