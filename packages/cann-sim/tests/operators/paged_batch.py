"""A batch of sequences over a paged cache, and its attention in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from operators.drawn_tensors import random


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sequence in float64, and its log-sum-exp.

    Args:
        query: [S, N, D].
        key: [K, KV_N, D].
        value: [K, KV_N, V].
        scale: What the scores are multiplied with.
        bias: Added to the scores, broadcastable to [N, S, K].

    Returns:
        [S, N, V] and [S, N].
    """
    group = query.shape[1] // key.shape[1]
    keys, values = (t.double().repeat_interleave(group, 1) for t in (key, value))
    scores = torch.einsum("snd,knd->nsk", query.double(), keys) * scale
    if bias is not None:
        scores = scores + bias.double()
    output = torch.einsum("nsk,knv->snv", scores.softmax(-1), values)
    return output, scores.logsumexp(-1).transpose(0, 1)


def causal(queries: int, keys: int) -> torch.Tensor:
    """Return the additive mask [S, K] of queries at the end of their keys."""
    hidden = torch.triu(torch.ones(queries, keys), keys - queries + 1)
    return torch.zeros(queries, keys).masked_fill(hidden.bool(), -math.inf)


@dataclass
class PagedBatch:
    """Packed queries, and caches [blocks, block size, KV heads, dim] in random order.

    Attributes:
        key_lengths: Keys of each sequence.
        query_lengths: Queries of each sequence; one each where it is None.
        dtype: Of queries and caches.
        heads: Heads of the queries.
        kv_heads: Heads of the caches.
        dim: Head dimension of queries and keys.
        value_dim: Head dimension of values.
        block: Slots of a page.
        pages: Pages of a row of the table; as many as the longest sequence needs where it is 0.
    """

    key_lengths: list[int]
    query_lengths: list[int] | None = None
    dtype: torch.dtype = torch.bfloat16
    heads: int = 4
    kv_heads: int = 2
    dim: int = 32
    value_dim: int = 32
    block: int = 16
    pages: int = 0

    def __post_init__(self) -> None:
        self.queries = self.query_lengths or [1] * len(self.key_lengths)
        width = self.pages or max(1, *(math.ceil(n / self.block) for n in self.key_lengths))
        blocks = len(self.key_lengths) * width + 1
        cache = (blocks, self.block, self.kv_heads)
        self.scale = 1 / math.sqrt(self.dim)
        self.query = random(sum(self.queries), self.heads, self.dim, seed=1, dtype=self.dtype)
        self.key = random(*cache, self.dim, seed=2, dtype=self.dtype)
        self.value = random(*cache, self.value_dim, seed=3, dtype=self.dtype)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(4))
        self.table = order[: blocks - 1].view(-1, width).int()

    def out(self) -> torch.Tensor:
        """Return a new output on the device, full of a value that attention does not give."""
        shape = (sum(self.queries), self.heads, self.value_dim)
        return torch.full(shape, 77.0, dtype=self.dtype).to("npu")

    def rows(self, cache: torch.Tensor, index: int, length: int) -> torch.Tensor:
        """Return the first rows of one sequence out of a cache."""
        return cache[self.table[index].long()].flatten(0, 1)[:length]

    def reference(
        self, lengths: list[int] | None = None, biases: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return attention and log-sum-exp in float64; zeros for a sequence without keys."""
        outputs, logarithms, start = [], [], 0
        for index, keys in enumerate(lengths or self.key_lengths):
            own = self.query[start : start + self.queries[index]]
            start += self.queries[index]
            key, value = (self.rows(cache, index, keys) for cache in (self.key, self.value))
            bias = None if biases is None else biases[index]
            output, logarithm = attend(own, key, value, self.scale, bias)
            outputs.append(output if keys else torch.zeros_like(output))
            logarithms.append(logarithm)
        return torch.cat(outputs), torch.cat(logarithms)


def pieces(tensor: torch.Tensor, lengths: list[int], dim: int = 0) -> list[torch.Tensor]:
    """Return consecutive parts of these lengths."""
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    return [tensor.narrow(dim, *part) for part in zip(starts, lengths, strict=True)]


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor, keys: int) -> None:
    """Compare an attention of so many keys with its reference.

    Scores, weights and their sums are in float32: an error of some units a key, of values below 5.
    """
    conformance.close(result.cpu(), reference, ulps=32 + keys, magnitude=torch.tensor(5.0).double())
