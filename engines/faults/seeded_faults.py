"""Faults derived from a seed: the fault, its place, and the requests decoded meanwhile."""

from __future__ import annotations

import dataclasses
import random

from engines.load.decode_load import compare_load

MOST_SEQUENCES_OF_FAULT, MOST_TOKENS_OF_FAULT = 6, 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, and the load during which it occurs.

    Attributes:
        seed: Determines everything else.
        kind: What fails.
        first: The occasion on which it fails first.
        rank: The rank of the worker, if there are several.
        prompts: Token ids of the load.
        lengths: Number of tokens to generate for each.
    """

    seed: int
    kind: str
    first: int
    rank: int
    prompts: list[list[int]]
    lengths: list[int]


def draw_fault(seed: int, kinds: tuple[str, ...], ranks: int = 1) -> Fault:
    """Return the fault of a seed.

    Args:
        seed: Any number.
        kinds: What may fail.
        ranks: How many workers there are.
    """
    draw = random.Random(seed)
    kind, first, rank = draw.choice(kinds), draw.randint(1, 8), draw.randrange(ranks)
    prompts, _ = compare_load(50)
    chosen = draw.sample(prompts, draw.randint(1, MOST_SEQUENCES_OF_FAULT))
    lengths = [draw.randint(3, MOST_TOKENS_OF_FAULT) for _ in chosen]
    return Fault(seed=seed, kind=kind, first=first, rank=rank, prompts=chosen, lengths=lengths)
