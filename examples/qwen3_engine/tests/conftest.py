"""Shared fixtures of the engine's tests: simulated device, tiny checkpoint, a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.tiny_checkpoint import write_tiny_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    import torch

pytest_plugins = "cann_sim.pytest_plugin"


@pytest.fixture(scope="session")
def npu() -> torch.device:
    """The first simulated NPU; torch_npu is imported."""
    import cann_sim

    cann_sim.activate()
    import torch
    import torch_npu  # noqa: TID251  # the host process chooses its device

    torch_npu.npu.set_device(0)
    return torch.device("npu:0")


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory, npu: torch.device) -> Path:
    """The default tiny checkpoint in bfloat16; not to be changed.

    transformers imports torch_npu where that is installed, so it needs the simulated device.
    """
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def config_values() -> dict[str, object]:
    """The keys of a real config.json, as transformers 5 writes it."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": None,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 256,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "layer_types": ["full_attention", "full_attention"],
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pad_token_id": None,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "sliding_window": None,
        "tie_word_embeddings": False,
        "transformers_version": "5.23.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 512,
    }


@pytest.fixture
def config(config_values: dict[str, object]) -> Qwen3Config:
    return Qwen3Config.from_mapping(config_values)
