"""A Qwen3-VL checkpoint of random weights and its processor, small enough to be simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from engines.models.tiny_qwen3 import VOCABULARY
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Qwen2TokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

if TYPE_CHECKING:
    from pathlib import Path

PATCH = {"patch_size": 16, "temporal_patch_size": 2}
# Patches in each direction that become one token.
MERGED = 2
SPECIAL = {
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
}


def write_checkpoint(folder: Path, *, num_layers: int, dtype: torch.dtype) -> None:
    """Write a checkpoint whose tokens depend on the images.

    Args:
        folder: Created.
        num_layers: Number of the layers of the vision encoder, and of the language model.
        dtype: Dtype of the weights.
    """
    tokenizer = make_tokenizer()
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in SPECIAL.items()}
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 1024,
        # Attention has to decide the token, or wrong lengths would not be seen.
        "initializer_range": 0.2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [24, 20, 20],
            "mrope_interleaved": True,
        },
    }
    vision: dict[str, Any] = {
        **PATCH,
        "depth": num_layers,
        "hidden_size": 128,
        "num_heads": 2,
        "intermediate_size": 256,
        "out_hidden_size": text["hidden_size"],
        "spatial_merge_size": MERGED,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.2,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["image"],
        video_token_id=ids["video"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(config).to(dtype).save_pretrained(folder)
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            **PATCH, merge_size=MERGED, min_pixels=32 * 32, max_pixels=256 * 256
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**PATCH, merge_size=MERGED),
        chat_template="{{ messages }}",
    )
    processor.save_pretrained(folder)


def make_tokenizer() -> Qwen2TokenizerFast:
    """Return a tokenizer whose tokens are bytes, and those that stand for images."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={each: i for i, each in enumerate(letters)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    made = Qwen2TokenizerFast(tokenizer_object=bytewise, eos_token=end, pad_token=end)
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL.values())})
    return made
