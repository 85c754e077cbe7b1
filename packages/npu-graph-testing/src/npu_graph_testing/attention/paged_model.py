"""Layers of paged attention, captured on a device that runs the fused operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from npu_graph_testing.attention.captured_model import CapturedModel

if TYPE_CHECKING:
    from random import Random

    from attn_update import Lengths

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, COLUMNS, BLOCKS = 4, 2, 16, 16, 3, 8
LONGEST = BLOCK_SIZE * COLUMNS


@dataclass(kw_only=True)
class PagedModel(CapturedModel[list[int]]):
    """Layers of paged attention over one cache each, captured for several batch sizes.

    A graph key is a number of sequences, each with one new token; a step is the lengths of their
    keys. Every layer reads its own cache of `BLOCKS` blocks, so layers that take each other's
    arguments are seen in the values.

    Attributes:
        layout: ``TND`` or ``BSH``.
        caches: One for each layer.
        inputs: By key, query and block table.
    """

    layout: str = "TND"
    caches: list[torch.Tensor] = field(init=False)
    inputs: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.caches = [
            self.random(BLOCKS, BLOCK_SIZE, KV_HEADS * HEAD_DIM) for _ in range(self.num_layers)
        ]

    def step_arguments(self, key: int, step: list[int]) -> dict[str, Lengths]:
        """Return the arguments of lengths by name."""
        return dict(self.lengths(key, step))

    def captured_step(self, key: int) -> list[int]:
        """Return one key for each sequence."""
        return [1] * key

    def lengths(self, key: int, lengths: list[int]) -> dict[str, list[int]]:
        """Return the arguments of lengths by name.

        Args:
            key: The number of sequences.
            lengths: Of the keys of each.
        """
        is_v1 = self.kind_name.startswith("fused_infer_attention_v1")
        query, keys = (
            ("actual_seq_lengths", "actual_seq_lengths_kv")
            if is_v1
            else ("actual_seq_qlen", "actual_seq_kvlen")
        )
        own = list(range(1, key + 1)) if self.layout == "TND" else [1] * key
        return {query: own, keys: lengths}

    def arguments(self, key: int, layer: int, step: list[int]) -> dict[str, object]:
        """Return the arguments of attention in one layer."""
        if key not in self.inputs:
            packed = (key, HEADS, HEAD_DIM) if self.layout == "TND" else (key, 1, HEADS * HEAD_DIM)
            table = torch.arange(key * COLUMNS, dtype=torch.int32).reshape(key, COLUMNS) % BLOCKS
            table = table.to(self.device.torch_device)
            self.inputs[key] = {"query": self.random(*packed), "block_table": table}
        is_v1 = self.kind_name.startswith("fused_infer_attention_v1")
        heads, scale = ("num_heads", "scale") if is_v1 else ("num_query_heads", "softmax_scale")
        return {
            **self.inputs[key],
            **self.lengths(key, step),
            "key": self.caches[layer],
            "value": self.caches[layer],
            "input_layout": self.layout,
            "block_size": BLOCK_SIZE,
            heads: HEADS,
            "num_key_value_heads": KV_HEADS,
            scale: HEAD_DIM**-0.5,
        }


def draw_lengths(random: Random, key: int) -> list[int]:
    """Return random lengths of keys that a `PagedModel` can hold."""
    return [random.randint(1, LONGEST) for _ in range(key)]
