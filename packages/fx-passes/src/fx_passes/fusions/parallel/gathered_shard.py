"""Replaces a rank's own part of a gathered tensor, which needs no communication."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.parallel.collectives import (
    ALL_GATHER,
    WAIT,
    ParallelGroup,
    build_collective,
    gathered,
    group_of,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import same_shape, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Pattern


def _chunk_of(rank: int) -> Pattern:
    def pattern(x: Tensor, size: int, group: str, chunks: int, dim: int) -> dict[str, Tensor]:
        whole = gathered(x, size, group)
        return {"whole": whole, "own": torch.ops.aten.chunk(whole, chunks, dim)[rank]}

    return pattern


def _part_of(rank: int) -> Pattern:
    def pattern(x: Tensor, size: int, group: str, part: int, dim: int) -> dict[str, Tensor]:
        whole = gathered(x, size, group)
        return {"whole": whole, "own": torch.ops.aten.split.Tensor(whole, part, dim)[rank]}

    return pattern


def _slice(
    x: Tensor, size: int, group: str, dim: int, start: int | None, end: int | None
) -> dict[str, Tensor]:
    whole = gathered(x, size, group)
    return {"whole": whole, "own": torch.ops.aten.slice.Tensor(whole, dim, start, end, 1)}


def _check(match: Match, *, groups: tuple[ParallelGroup, ...], rank: int) -> NoMatch | None:
    group = group_of(match, groups)
    return same_shape(match, "x", "own") or _place_problem(match, group, rank)


def _place_problem(match: Match, group: ParallelGroup, rank: int) -> NoMatch | None:
    """Return why the part is not that of this rank."""
    bound, x = match.bound, match.tensor("x")
    problem = ""
    if bound["dim"] != 0:
        problem = f"the parts are along dimension {bound['dim']}; they are gathered along the first"
    elif not sizes_equal(bound["size"], group.size):
        problem = f"{bound['size']} parts are gathered from {group.size} ranks"
    elif "start" in bound:
        length, start = x.shape[0], bound["start"]
        if not sizes_equal(0 if start is None else start, group.rank * length):
            problem = f"the part begins at {start}, that of the rank {group.rank} elsewhere"
    elif group.rank != rank:
        problem = f"the part is that of the rank {rank}; this is rank {group.rank}"
    elif "chunks" in bound and not sizes_equal(bound["chunks"], group.size):
        problem = f"{bound['chunks']} chunks of what {group.size} ranks gave"
    return NoMatch(problem) if problem else None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    replaced = {"own": match.node("x")}
    if "whole" in match.needed:
        arguments = match.arguments("x", "size", "group")
        whole = build_collective(build, ALL_GATHER, *arguments, val=match.value("whole"))
        replaced["whole"] = whole
    return replaced


def remove_gather_of_own_shard(groups: tuple[ParallelGroup, ...]) -> tuple[Rule, ...]:
    """Return the rules that replace a rank's own part of a gathered tensor by the gather's input.

    Matches `chunk`, `split` or a slice along the first dimension. If nothing else uses the gathered
    tensor, the all-gather is removed. Exact. One rule for each rank that this process has in a
    group.

    Args:
        groups: The groups of the all-gathers.
    """

    def rule(name: str, patterns: tuple[Pattern, ...], rank: int) -> Rule:
        return Rule(
            name=name,
            patterns=patterns,
            check=partial(_check, groups=groups, rank=rank),
            rewrite=_rewrite,
            operators=(ALL_GATHER, WAIT),
            shares_memory=True,
        )

    ranks = sorted({group.rank for group in groups})
    return (
        rule("remove_gather_of_own_slice", (_slice,), -1),
        *(
            rule(f"remove_gather_of_shard_{rank}", (_chunk_of(rank), _part_of(rank)), rank)
            for rank in ranks
        ),
    )
