"""Write a tiny random Qwen3 checkpoint: ``python -m qwen3_engine.tiny_checkpoint FOLDER``.

The weights are random but not small: with the usual initialisation all logits of an untrained model
are nearly equal, and a comparison of tokens would say nothing. A larger spread gives the best token
a margin, as in a trained model.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyShape:
    """The shape of a tiny model; heads have the 128 elements of every Qwen3 model.

    Attributes:
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        intermediate_size: width of the feed-forward layer.
        num_heads: query heads.
        num_kv_heads: key/value heads.
        vocab_size: tokens.
        max_positions: positions of the rotary embedding.
        tie_word_embeddings: whether the output projection is the embedding.
    """

    num_layers: int = 4
    hidden_size: int = 256
    intermediate_size: int = 512
    num_heads: int = 4
    num_kv_heads: int = 2
    vocab_size: int = 512
    max_positions: int = 4096
    tie_word_embeddings: bool = False


# Standard deviation of the weights: 1/sqrt(256), which keeps the scale of activations through a
# matrix product of the default width.
_INITIALIZER_RANGE = 0.0625


def write_tiny_checkpoint(
    folder: str | Path,
    *,
    shape: TinyShape | None = None,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
    max_shard_size: str = "1GB",
) -> Path:
    """Write a random checkpoint with transformers, the same for the same arguments.

    Args:
        folder: made if missing; gets config.json and safetensors files.
        shape: the shape of the model; the default one if ``None``.
        dtype: dtype of the stored weights.
        seed: of the random weights; the global generator is left as it was.
        max_shard_size: as in ``save_pretrained``; small values make several shards and an index.

    Returns:
        The folder.
    """
    # transformers takes seconds to import, which the engine itself does not need.
    from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415

    shape = shape or TinyShape()
    config = Qwen3Config(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=128,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=shape.tie_word_embeddings,
        initializer_range=_INITIALIZER_RANGE,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        _spread_norm_weights(model)
    path = Path(folder)
    torch.nn.Module.to(model, dtype)
    model.save_pretrained(path, max_shard_size=max_shard_size)
    return path


def _spread_norm_weights(model: torch.nn.Module) -> None:
    """Replace the norm weights, all ones at first, so that a mixed-up norm changes the result."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)


def main() -> None:
    """Write the default tiny checkpoint to the folder given on the command line."""
    parser = argparse.ArgumentParser(description="Write a tiny random Qwen3 checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    shape = TinyShape(num_layers=arguments.layers)
    dtypes = {
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float32": torch.float32,
    }
    path = write_tiny_checkpoint(
        arguments.folder, shape=shape, dtype=dtypes[arguments.dtype], seed=arguments.seed
    )
    print(f"wrote {sum(file.stat().st_size for file in path.iterdir())} bytes to {path}")


if __name__ == "__main__":
    main()
