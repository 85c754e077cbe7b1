"""FlashAttentionScore in float64, and its operands in each layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
HEADS, DIM, BATCH, LENGTH, KEYS = 4, 32, 2, 5, 7
COMPRESSED = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
# [B, S, N, D] in each layout.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "BSND": lambda t: t,
    "BSH": lambda t: t.flatten(2),
    "SBH": lambda t: t.flatten(2).transpose(0, 1).contiguous(),
    "BNSD": lambda t: t.transpose(1, 2).contiguous(),
}


def scores_of(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    """[B, N, S, K] in float64 from [B, S, N, D] and [B, K, KV_N, D]."""
    key = key.repeat_interleave(query.shape[2] // key.shape[2], 2)
    return torch.einsum("bsnd,bknd->bnsk", query.double(), key.double()) * scale


def attend(scores: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[B, S, N, D] from the scores; rows without a key are zeros."""
    value = value.repeat_interleave(scores.shape[1] // value.shape[2], 2).double()
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bnsk,bknd->bsnd", weights, value)


def attend_apart(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    queries: list[int],
    keys: list[int],
    scale: float,
) -> torch.Tensor:
    """[T, N, D] of packed sequences, each causal up to its last key."""
    parts = []
    for q, k, v in zip(
        torch.split(query, queries), torch.split(key, keys), torch.split(value, keys), strict=True
    ):
        length, count = q.shape[0], k.shape[0]
        hidden = torch.arange(count)[None] > torch.arange(length)[:, None] + count - length
        scores = scores_of(q[None], k[None], scale).masked_fill(hidden, -torch.inf)
        parts.append(attend(scores, v[None])[0])
    return torch.cat(parts)


def weights_with_sink(scores: torch.Tensor, sink: torch.Tensor | None) -> torch.Tensor:
    """Weights of the keys where one more score, of no value, shares in each row's sum."""
    if sink is None:
        return scores.softmax(-1)
    column = sink.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]
