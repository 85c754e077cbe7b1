"""Tests of qwen3_engine.qwen3.checkpoint and qwen3_engine.qwen3.weight_sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file

from qwen3_engine.errors import CheckpointError, MissingCheckpointFileError
from qwen3_engine.qwen3.checkpoint import Checkpoint, load_weights
from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.qwen3.weight_sources import weight_sources

if TYPE_CHECKING:
    from pathlib import Path


def _tensors(config: Qwen3Config) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator)
        for source in weight_sources(config).values()
        for name, shape in source.parts
    }


def _parameters(config: Qwen3Config, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    parameters = {}
    for name, source in weight_sources(config).items():
        rows = sum(shape[0] for _, shape in source.parts)
        parameters[name] = torch.zeros(rows, *source.parts[0][1][1:], dtype=dtype)
    return parameters


def _write(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")


def _write_shards(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    names = sorted(tensors)
    weight_map = {}
    for index, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{index + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    index_text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(index_text)


@pytest.mark.parametrize("write", [_write, _write_shards])
def test_load_weights_fuses_parts_by_rows(
    tmp_path: Path, config: Qwen3Config, write: object
) -> None:
    tensors = _tensors(config)
    assert callable(write)
    write(tmp_path, tensors)
    parameters = _parameters(config, torch.bfloat16)

    load_weights(Checkpoint(tmp_path), config, parameters)

    attention = "model.layers.1.self_attn"
    qkv = torch.cat([tensors[f"{attention}.{part}_proj.weight"] for part in "qkv"])
    gate_up = torch.cat(
        [tensors[f"model.layers.0.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    )
    assert torch.equal(parameters["layers.1.qkv"], qkv.bfloat16())
    assert torch.equal(parameters["layers.0.gate_up"], gate_up.bfloat16())
    assert torch.equal(parameters["lm_head"], tensors["lm_head.weight"].bfloat16())


def test_load_weights_missing_tensor_names_it(tmp_path: Path, config: Qwen3Config) -> None:
    tensors = _tensors(config)
    del tensors["model.layers.1.self_attn.k_norm.weight"]
    _write(tmp_path, tensors)

    with pytest.raises(
        CheckpointError, match=r"expected a tensor '.*1\.self_attn\.k_norm\.weight'"
    ):
        load_weights(Checkpoint(tmp_path), config, _parameters(config, torch.float32))


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3, 3), torch.zeros(256, dtype=torch.int8)], ids=["shape", "dtype"]
)
def test_load_weights_wrong_tensor_names_it(
    tmp_path: Path, config: Qwen3Config, wrong: torch.Tensor
) -> None:
    _write(tmp_path, {**_tensors(config), "model.norm.weight": wrong})

    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' must be .* \(256,\), found"):
        load_weights(Checkpoint(tmp_path), config, _parameters(config, torch.float32))


def test_load_weights_tensor_of_no_weight_is_an_error(tmp_path: Path, config: Qwen3Config) -> None:
    _write(tmp_path, {**_tensors(config), "model.layers.0.mlp.gate.weight": torch.zeros(2)})

    with pytest.raises(CheckpointError, match=r"'model\.layers\.0\.mlp\.gate\.weight'"):
        load_weights(Checkpoint(tmp_path), config, _parameters(config, torch.float32))


@pytest.mark.parametrize("stores_both", [True, False])
def test_load_weights_tied_embeddings_need_no_lm_head(
    tmp_path: Path, config_values: dict[str, object], stores_both: bool
) -> None:
    tied = Qwen3Config.from_mapping({**config_values, "tie_word_embeddings": True})
    tensors = _tensors(tied)
    extra = {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    _write(tmp_path, tensors | (extra if stores_both else {}))
    parameters = _parameters(tied, torch.float32)

    load_weights(Checkpoint(tmp_path), tied, parameters)

    assert "lm_head" not in parameters
    assert torch.equal(parameters["embedding"], tensors["model.embed_tokens.weight"])


def test_checkpoint_missing_folder_names_it(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointFileError, match=r"nowhere.*no such folder"):
        Checkpoint(tmp_path / "nowhere")


def test_checkpoint_no_safetensors_names_both_files(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointFileError, match=r"model\.safetensors.*index\.json"):
        Checkpoint(tmp_path)


def test_checkpoint_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Checkpoint(tmp_path)


def test_checkpoint_missing_shard_names_it(tmp_path: Path, config: Qwen3Config) -> None:
    _write_shards(tmp_path, _tensors(config))
    (tmp_path / "model-00002-of-00002.safetensors").unlink()

    with pytest.raises(MissingCheckpointFileError, match=r"'model-00002-of-00002\.safetensors'"):
        Checkpoint(tmp_path)


def test_checkpoint_index_contradicting_a_shard_names_the_tensor(
    tmp_path: Path, config: Qwen3Config
) -> None:
    _write_shards(tmp_path, _tensors(config))
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["ghost"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match=r"'ghost' is in 'model-00001"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_checkpoint_broken_index_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)

    with pytest.raises(CheckpointError, match=r"index\.json.*weight_map"):
        Checkpoint(tmp_path)


def test_checkpoint_truncated_file_names_it(tmp_path: Path, config: Qwen3Config) -> None:
    _write(tmp_path, _tensors(config))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])

    with pytest.raises(CheckpointError, match=r"model\.safetensors.*not a complete"):
        Checkpoint(tmp_path)


def test_tensors_unknown_name_shows_the_nearest(tmp_path: Path) -> None:
    _write(tmp_path, {"model.norm.weight": torch.zeros(2)})

    with pytest.raises(CheckpointError, match=r"nearest name there is 'model\.norm\.weight'"):
        list(Checkpoint(tmp_path).tensors(["model.nor.weight"]))
