"""Tests of qwen3_engine.qwen3.model_config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.errors import ConfigError, MissingCheckpointFileError
from qwen3_engine.qwen3.model_config import Qwen3Config

if TYPE_CHECKING:
    from pathlib import Path


def test_from_mapping_transformers_5_keys_reads_every_field(
    config_values: dict[str, object],
) -> None:
    config = Qwen3Config.from_mapping(config_values)

    assert config == Qwen3Config(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=128,
        max_positions=32768,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        checkpoint_dtype=torch.bfloat16,
        eos_token_ids=(),
    )
    assert (config.q_size, config.kv_size) == (512, 256)


def test_from_mapping_transformers_4_keys_reads_the_same(config_values: dict[str, object]) -> None:
    older = dict(config_values)
    del older["rope_parameters"], older["dtype"], older["layer_types"]
    older |= {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "bfloat16"}

    assert Qwen3Config.from_mapping(older) == Qwen3Config.from_mapping(config_values)


def test_from_mapping_published_config_is_read() -> None:
    """The config.json of Qwen3-0.6B as published, written by transformers 4.51."""
    published = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }

    config = Qwen3Config.from_mapping(published)

    assert (config.q_size, config.kv_size, config.rope_theta) == (2048, 1024, 1e6)
    assert config.tie_word_embeddings
    assert config.eos_token_ids == (151645,)


def test_from_mapping_unknown_key_names_the_nearest(config_values: dict[str, object]) -> None:
    config_values["num_hiden_layers"] = 2

    with pytest.raises(ConfigError, match=r"'num_hiden_layers'; did you mean 'num_hidden_layers'"):
        Qwen3Config.from_mapping(config_values)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("use_sliding_window", True, "sliding-window attention is not served"),
        ("rope_scaling", {"type": "yarn", "factor": 4.0}, "rotary scaling is not served"),
        ("attention_bias", True, "bias"),
        ("model_type", "qwen3_moe", "only dense 'qwen3'"),
        ("hidden_act", "gelu", "only 'silu'"),
        ("quantization_config", {"bits": 4}, "quantised weights are not served"),
        ("layer_types", ["full_attention", "sliding_attention"], "'sliding_attention'"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1.0}, "rope_type 'yarn'"),
        ("rope_parameters", {"rope_theta": 1.0, "factor": 2.0}, r"\['factor'\]"),
        ("rope_theta", 5.0, "remove one"),
        ("head_dim", 64, "head_dim is 64"),
        ("num_key_value_heads", 3, "multiple"),
        ("vocab_size", 0, "vocab_size must be whole and at least 1"),
        ("vocab_size", True, "vocab_size must be whole"),
        ("rms_norm_eps", "small", "rms_norm_eps must be above 0"),
        ("dtype", "int8", "dtype is 'int8'"),
        ("eos_token_id", "end", "eos_token_id"),
        ("tie_word_embeddings", 1, "true or false"),
    ],
)
def test_from_mapping_unserved_value_says_why(
    config_values: dict[str, object], key: str, value: object, reason: str
) -> None:
    config_values[key] = value

    with pytest.raises(ConfigError, match=reason):
        Qwen3Config.from_mapping(config_values)


@pytest.mark.parametrize("key", ["model_type", "hidden_size", "rms_norm_eps", "head_dim"])
def test_from_mapping_missing_key_is_named(config_values: dict[str, object], key: str) -> None:
    del config_values[key]

    with pytest.raises(ConfigError, match=key):
        Qwen3Config.from_mapping(config_values)


@pytest.mark.parametrize(("value", "expected"), [(None, ()), (7, (7,)), ([7, 8], (7, 8))])
def test_from_mapping_eos_token_id_takes_a_number_or_a_list(
    config_values: dict[str, object], value: object, expected: tuple[int, ...]
) -> None:
    config_values["eos_token_id"] = value

    assert Qwen3Config.from_mapping(config_values).eos_token_ids == expected


def test_from_folder_no_file_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointFileError, match=r"config\.json"):
        Qwen3Config.from_folder(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_from_folder_not_an_object_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(ConfigError, match=r"config\.json"):
        Qwen3Config.from_folder(tmp_path)


def test_from_folder_unknown_key_names_the_file(
    tmp_path: Path, config_values: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config_values, "hiden_size": 1}))

    with pytest.raises(ConfigError, match=r"'hidden_size'.*config\.json"):
        Qwen3Config.from_folder(tmp_path)
