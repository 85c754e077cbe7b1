"""Tests of qwen3_engine.qwen3.model_loader."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.errors import CheckpointError, ConfigError, MissingCheckpointFileError
from qwen3_engine.qwen3.model_loader import load_model

if TYPE_CHECKING:
    from pathlib import Path


def _load(folder: Path, device: torch.device, *, max_length: int = 256) -> None:
    load_model(folder, device=device, num_blocks=3, max_length=max_length)


def _copy_with_config(folder: Path, target: Path, **changes: object) -> Path:
    shutil.copytree(folder, target, dirs_exist_ok=True)
    path = target / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value != "drop"}))
    return target


def test_load_model_puts_everything_on_the_device(
    checkpoint_folder: Path, npu: torch.device
) -> None:
    model = load_model(checkpoint_folder, device=npu, num_blocks=3, max_length=256)

    tensors = [*model.parameters(), *model.buffers()]
    model.attention.close()
    assert {tensor.device for tensor in tensors} == {npu}
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
    assert not any(tensor.requires_grad for tensor in tensors)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_load_model_missing_file_is_named(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path, name: str
) -> None:
    folder = _copy_with_config(checkpoint_folder, tmp_path)
    (folder / name).unlink()

    with pytest.raises(MissingCheckpointFileError, match=name):
        _load(folder, npu)


def test_load_model_unknown_config_key_names_the_nearest(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path
) -> None:
    folder = _copy_with_config(checkpoint_folder, tmp_path, rope_thetta=1.0)

    with pytest.raises(ConfigError, match="'rope_thetta'; did you mean 'rope_theta'"):
        _load(folder, npu)


def test_load_model_config_of_another_shape_names_the_tensor(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path
) -> None:
    folder = _copy_with_config(checkpoint_folder, tmp_path, vocab_size=500)

    with pytest.raises(
        CheckpointError, match=r"'model\.embed_tokens\.weight' must be .*\(500, 256"
    ):
        _load(folder, npu)


def test_load_model_without_any_dtype_requires_one(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path
) -> None:
    folder = _copy_with_config(checkpoint_folder, tmp_path, dtype="drop")

    with pytest.raises(ConfigError, match="names no dtype"):
        _load(folder, npu)


def test_load_model_max_length_beyond_the_positions_is_refused(
    checkpoint_folder: Path, npu: torch.device
) -> None:
    with pytest.raises(ConfigError, match="max_length is 4097, expected 1 to the 4096"):
        _load(checkpoint_folder, npu, max_length=4097)
