"""Cases over a paged cache, in any layout of queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attn_update.kinds import FIA_V1
from npu_graph_testing.attention.cases.attention_case import (
    BLOCK_SIZE,
    BLOCKS,
    COLUMNS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    AttentionCase,
    integers,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    import torch

    from attn_update.kinds import OperatorFamily
    from npu_graph_testing.attention.cases.attention_case import CaseModel, Step

RAGGED = frozenset({"TND", "NTD"})


def random_tensor(model: CaseModel, shape: tuple[int, ...]) -> torch.Tensor:
    """Return random values of the model's dtype."""
    return model.random(*shape)


@dataclass(frozen=True, kw_only=True)
class PagedCase:
    """Builds an `AttentionCase`.

    Attributes:
        family: Names of the arguments.
        layout: Layout of query and output.
        tokens: Query tokens per sequence.
        ragged: Whether the sequences of a step have different numbers of tokens.
        told_heads: The number of heads in the call; by default `heads`.
        dim: Dimension of a head.
        rope_dim: Dimension of its rotary part; 0 for none.
        gives_query_lengths: Whether the call has query lengths.
        cache_has_heads: Whether the cache is [blocks, heads, block size, dim].
        cache_unit: The unit of a five-dimensional cache, [blocks, heads, dim / unit, block size,
            unit]; 0 for none.
        rope_cache_unit: The unit of the rotary part's cache; by default `cache_unit`.
        query: Creates the query of a shape; by default random.
        cache: Creates keys or values of a shape; by default random.
        rope: Creates rotary parts of queries and keys; by default random.
        key_lengths: Converts random lengths to the step's; by default unchanged.
        arguments: More arguments for a key.
        layer_arguments: More arguments of each layer.
        rebinds: Whether a step passes the block table.
        unpadded: Whether a step has fewer sequences.
    """

    name: str
    kind_name: str
    family: OperatorFamily = FIA_V1
    layout: str = "TND"
    tokens: int = 1
    ragged: bool = False
    heads: int = HEADS
    told_heads: int | None = None
    kv_heads: int = KV_HEADS
    dim: int = HEAD_DIM
    rope_dim: int = 0
    gives_query_lengths: bool = True
    cache_has_heads: bool = False
    cache_unit: int = 0
    rope_cache_unit: int | None = None
    block_size: int = BLOCK_SIZE
    query: Callable[[CaseModel, tuple[int, ...]], torch.Tensor] = random_tensor
    cache: Callable[[CaseModel, tuple[int, ...]], torch.Tensor] = random_tensor
    rope: Callable[[CaseModel, tuple[int, ...]], torch.Tensor] = random_tensor
    key_lengths: Callable[[list[int]], Any] = list
    arguments: Callable[[CaseModel, int], dict[str, object]] | None = None
    layer_arguments: Callable[[CaseModel], dict[str, object]] | None = None
    rebinds: bool = False
    unpadded: bool = False

    def build(self) -> AttentionCase:
        """Return the case."""
        return AttentionCase(
            name=self.name,
            kind_name=self.kind_name,
            shared=self._shared,
            layer=self._layer,
            captured=self._captured,
            draw=self._draw,
            valid_tokens=self._valid_tokens,
        )

    @property
    def _query_layout(self) -> str:
        return self.layout.partition("_")[0]

    def _query_shape(self, key: int, dim: int) -> tuple[int, ...]:
        heads, tokens = self.heads, self.tokens
        return {
            "TND": (key * tokens, heads, dim),
            "NTD": (heads, key * tokens, dim),
            "BSH": (key, tokens, heads * dim),
            "BSND": (key, tokens, heads, dim),
            "BNSD": (key, heads, tokens, dim),
        }[self._query_layout]

    def _shared(self, model: CaseModel, key: int) -> dict[str, object]:
        is_v1 = self.family is FIA_V1
        blocks = [block % BLOCKS for block in range(key * COLUMNS)]
        shared: dict[str, object] = {
            "query": self.query(model, self._query_shape(key, self.dim)),
            "block_table": integers(model, blocks, key, COLUMNS),
            "block_size": self.block_size,
            "input_layout": self.layout,
            self.family.heads: self.told_heads or self.heads,
            "num_key_value_heads": self.kv_heads,
            "scale" if is_v1 else "softmax_scale": (self.dim + self.rope_dim) ** -0.5,
        }
        if self.rope_dim:
            shared["query_rope"] = self.rope(model, self._query_shape(key, self.rope_dim))
        return shared | (self.arguments(model, key) if self.arguments else {})

    def _cache_shape(self, dim: int, unit: int) -> tuple[int, ...]:
        if unit:
            return BLOCKS, self.kv_heads, dim // unit, self.block_size, unit
        if self.cache_has_heads:
            return BLOCKS, self.kv_heads, self.block_size, dim
        return BLOCKS, self.block_size, self.kv_heads * dim

    def _layer(self, model: CaseModel) -> dict[str, object]:
        shape = self._cache_shape(self.dim, self.cache_unit)
        key = self.cache(model, shape)
        value = key if self.rope_dim else self.cache(model, shape)
        layer: dict[str, object] = {"key": key, "value": value}
        if self.rope_dim:
            unit = self.cache_unit if self.rope_cache_unit is None else self.rope_cache_unit
            layer["key_rope"] = self.rope(model, self._cache_shape(self.rope_dim, unit))
        return layer | (self.layer_arguments(model) if self.layer_arguments else {})

    def _step(self, ends: list[int], lengths: list[int]) -> Step:
        step: Step = {self.family.key_lengths: self.key_lengths(lengths)}
        if self.gives_query_lengths:
            queries = [self.tokens] * len(ends) if self._query_layout not in RAGGED else ends
            step[self.family.query_lengths] = queries
        return step

    def _captured(self, model: CaseModel, key: int) -> Step:
        del model
        return self._step([self.tokens * (i + 1) for i in range(key)], [1] * key)

    def _draw(self, random: Random, model: CaseModel, key: int) -> Step:
        count = random.randint(1, key) if self.unpadded else key
        ends = [self.tokens * (i + 1) for i in range(count)]
        if self.ragged:
            total = self.tokens * count
            ends = [*sorted(random.randint(0, total) for _ in range(count - 1)), total]
        counts = [end - begin for begin, end in pairwise([0, *ends])]
        lengths = [random.randint(own, self.block_size * COLUMNS) for own in counts]
        step = self._step(ends, lengths)
        if self.rebinds:
            blocks = [random.randrange(BLOCKS) for _ in range(key * COLUMNS)]
            step["block_table"] = integers(model, blocks, key, COLUMNS)[:count]
        return step

    def _valid_tokens(self, step: Step) -> int | None:
        return step[self.family.query_lengths][-1] if self.unpadded else None
