"""Tests of qwen3_engine.tiny_checkpoint and qwen3_engine.demonstration.reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qwen3_engine.demonstration.reference import ReferenceModel
from qwen3_engine.qwen3.checkpoint import Checkpoint
from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

SMALL = TinyShape(num_layers=1, hidden_size=128, intermediate_size=128, vocab_size=64)


def test_write_same_seed_writes_the_same_bytes(tmp_path: Path, npu: torch.device) -> None:
    folders = [write_tiny_checkpoint(tmp_path / name, shape=SMALL) for name in ("a", "b")]

    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)

    assert first == second


def test_write_other_seed_writes_other_weights(tmp_path: Path, npu: torch.device) -> None:
    first = write_tiny_checkpoint(tmp_path / "a", shape=SMALL, seed=1) / "model.safetensors"
    second = write_tiny_checkpoint(tmp_path / "b", shape=SMALL, seed=2) / "model.safetensors"

    assert first.read_bytes() != second.read_bytes()


def test_write_leaves_the_global_generator_as_it_was(tmp_path: Path, npu: torch.device) -> None:
    before = torch.get_rng_state()

    write_tiny_checkpoint(tmp_path, shape=SMALL)

    assert torch.equal(torch.get_rng_state(), before)


def test_write_small_shards_makes_an_index(tmp_path: Path, npu: torch.device) -> None:
    write_tiny_checkpoint(tmp_path, shape=SMALL, max_shard_size="100KB")

    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert "model.layers.0.mlp.up_proj.weight" in Checkpoint(tmp_path).tensor_names


def test_write_config_says_the_shape(tmp_path: Path, npu: torch.device) -> None:
    write_tiny_checkpoint(tmp_path, shape=SMALL, dtype=torch.float16)

    config = Qwen3Config.from_folder(tmp_path)

    assert (config.num_layers, config.vocab_size, config.head_dim) == (1, 64, 128)
    assert (config.num_heads, config.num_kv_heads) == (4, 2)
    assert config.checkpoint_dtype == torch.float16


def test_reference_logits_decide_tokens(checkpoint_folder: Path) -> None:
    """The spread of the weights gives the best token a margin that 16-bit rounding leaves."""
    text = torch.randint(0, 512, (200,), generator=torch.Generator().manual_seed(0)).tolist()

    logits = ReferenceModel(checkpoint_folder).logits(text)

    assert logits.shape == (200, 512)
    best = torch.topk(logits, 2).values
    margins = (best[:, 0] - best[:, 1]) / logits.square().mean().sqrt()
    assert margins.median() > 0.1


def test_reference_logits_depend_on_tokens_before_only(checkpoint_folder: Path) -> None:
    reference = ReferenceModel(checkpoint_folder)

    first = reference.logits([1, 2, 3, 4])
    second = reference.logits([1, 2, 3, 9])

    torch.testing.assert_close(first[:3], second[:3])
    assert not torch.allclose(first[3], second[3])
