"""Keys that are chosen for each query, alone or in groups of neighbours."""

from __future__ import annotations

import math

import torch


def drawn_selection(
    queries: list[int], keys: list[int], *, size: int, most: int, seed: int
) -> torch.Tensor:
    """Return the chosen groups of each query, [tokens, 1, most], filled up with -1.

    Args:
        queries: How many each sequence has.
        keys: How many each sequence has.
        size: Of a group.
        most: Groups of a query.
        seed: Of the choice.
    """
    generator = torch.Generator().manual_seed(seed)
    selection = torch.full((sum(queries), 1, most), -1, dtype=torch.int32)
    lengths = [length for own, length in zip(queries, keys, strict=True) for _ in range(own)]
    for token, length in enumerate(lengths):
        groups = math.ceil(length / size)
        count = min(most - token % 2, groups)
        selection[token, 0, :count] = torch.randperm(groups, generator=generator)[:count].int()
    return selection


def chosen_keys(groups: torch.Tensor, *, size: int, keys: int, seen: int) -> list[int]:
    """Return the keys of a query's groups among the first `seen` of `keys`."""
    return [
        key
        for group in groups.tolist()
        if group >= 0
        for key in range(group * size, min((group + 1) * size, keys))
        if key < seen
    ]
