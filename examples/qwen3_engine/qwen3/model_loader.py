"""Make a model from a checkpoint folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qwen3_engine.errors import ConfigError
from qwen3_engine.qwen3.attention import (
    Attend,
    AttentionOperator,
    Mark,
    attend_at_once,
    leave_unmarked,
)
from qwen3_engine.qwen3.checkpoint import Checkpoint, load_weights
from qwen3_engine.qwen3.model import Qwen3Model
from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.serving.step_state import StepState

if TYPE_CHECKING:
    from pathlib import Path


def load_model(
    folder: str | Path,
    *,
    device: torch.device | str,
    num_blocks: int,
    max_length: int,
    dtype: torch.dtype | None = None,
    attend: Attend = attend_at_once,
    mark: Mark = leave_unmarked,
) -> Qwen3Model:
    """Load a dense Qwen3 model with an empty key/value cache.

    Args:
        folder: a Hugging Face checkpoint: config.json and safetensors.
        device: an NPU, e.g. ``npu:0``.
        num_blocks: blocks of the cache, including block 0 (reserved for padding).
        max_length: tokens of the longest sequence, prompt and output together.
        dtype: bfloat16 or float16; by default that of the checkpoint.
        attend: launches attention; by default eagerly.
        mark: decorates the function of the attention operator.

    Returns:
        The model. It owns parameters and cache; close its ``attention`` when you no longer use the
        model.

    Raises:
        MissingCheckpointFileError: a file of the checkpoint is missing.
        ConfigError: the config requires a feature that the engine does not have, or ``max_length``
            exceeds the positions of the model, or no dtype is given anywhere.
        CheckpointError: the tensors do not match the config.
    """
    config = Qwen3Config.from_folder(folder)
    checkpoint = Checkpoint(folder)
    dtype = dtype or config.checkpoint_dtype
    if dtype is None:
        raise ConfigError(
            f"loading {str(folder)!r}: its config.json names no dtype; give one, e.g. "
            "dtype=torch.bfloat16"
        )
    if not 1 <= max_length <= config.max_positions:
        raise ConfigError(
            f"loading {str(folder)!r}: max_length is {max_length}, expected 1 to the "
            f"{config.max_positions} positions of the model"
        )
    target = torch.device(device)
    attention = AttentionOperator(
        config, dtype=dtype, device=target, attend=attend, step_state=StepState(), mark=mark
    )
    try:
        model = Qwen3Model(
            config,
            attention,
            num_blocks=num_blocks,
            max_length=max_length,
            dtype=dtype,
            device=target,
        )
        load_weights(checkpoint, config, dict(model.named_parameters()))
    except BaseException:
        attention.close()
        raise
    return model.eval()
