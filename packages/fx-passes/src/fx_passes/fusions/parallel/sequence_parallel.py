"""Rewrites a norm after an all-reduce so that each rank normalises a part of the tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fx_passes.fusions.norms.residual_norm import NORMS
from fx_passes.fusions.parallel.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    WAIT,
    ParallelGroup,
    build_collective,
    gathered,
    group_of,
    reduced,
)
from fx_passes.matching.combined_pattern import calling, combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import (
    dtype_in,
    rank_is,
    same_dtype,
    same_shape,
    sizes_equal,
)
from fx_passes.rewriting.rule import Pattern, Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _reduced(x: Tensor, operation: str, group: str) -> Linked:
    return label(reduced(x, operation, group), "rows"), {}


def _gathered(x: Tensor, size: int, group: str) -> Linked:
    return label(gathered(x, size, group), "rows"), {}


def _gathered_and_cut(
    x: Tensor, size: int, group: str, dim: int, start: int | None, end: int | None
) -> Linked:
    """With the rows left out that are padding, of which there are none where this is fused."""
    whole = gathered(x, size, group)
    return label(torch.ops.aten.slice.Tensor(whole, dim, start, end, 1), "rows"), {}


# The addition of visual features to the first layers, as in Qwen3-VL.
_added = calling(torch.ops.aten.add.Tensor, extra="Tensor")


def _joined(rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    added = torch.ops.npu.npu_add_rms_norm(rows, residual, weight, epsilon)
    return None, {"normed": added[0], "total": label(added[2], "total")}


def _joined_turned_round(rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    added = torch.ops.npu.npu_add_rms_norm(residual, rows, weight, epsilon)
    return None, {"normed": added[0], "total": label(added[2], "total")}


def _separate(rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    total = rows + residual
    return None, {"normed": torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0], "total": total}


def _first(rows: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """Of the first layer: the sum is the residual of those that follow."""
    return None, {"normed": torch.ops.npu.npu_rms_norm(rows, weight, epsilon)[0], "total": rows}


def _patterns() -> tuple[Pattern, ...]:
    norms = (_joined, _joined_turned_round, _separate)
    return (
        *(combine(_reduced, norm) for norm in (*norms, _first)),
        *(combine(_reduced, _added, norm) for norm in norms[:2]),
        *(combine(_gathered, norm) for norm in norms),
        *(
            combine(opening, *extra, norm)
            for opening, extra in (
                (_gathered, (_added,)),
                (_gathered_and_cut, ()),
                (_gathered_and_cut, (_added,)),
            )
            for norm in norms[:2]
        ),
    )


def _check(match: Match, *, groups: tuple[ParallelGroup, ...], divisible: bool) -> NoMatch | None:
    group = group_of(match, groups)
    others = [name for name in ("residual", "extra") if name in match.bound]
    unmet = (
        dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or rank_is(match, 2, "x")
        or rank_is(match, 1, "weight")
        or same_dtype(match, "x", "weight", *others)
        or same_shape(match, "rows", *others)
    )
    if unmet is None and match.bound.get("operation", "sum") != "sum":
        unmet = NoMatch(f"the parts are reduced by {match.bound['operation']!r}, not summed")
    if unmet is None and "operation" not in match.bound:
        return _gather_problem(match, group)
    return unmet or _division_problem(match, group, divisible)


def _gather_problem(match: Match, group: ParallelGroup) -> NoMatch | None:
    """Return why the rows that are normalised are not all that the ranks have."""
    x, rows = match.tensor("x"), match.tensor("rows")
    if not sizes_equal(match.bound["size"], group.size):
        return NoMatch(f"{match.bound['size']} parts are gathered from {group.size} ranks")
    if match.bound.get("dim", 0) != 0 or match.bound.get("start") not in {None, 0}:
        return NoMatch("the rows that are gathered are not cut at their end")
    if not sizes_equal(rows.shape[0], x.shape[0] * group.size):
        return NoMatch(
            f"{rows.shape[0]} of {x.shape[0] * group.size} gathered tokens are normalised; the "
            "others are padding, which the residual lacks"
        )
    return None


def _division_problem(match: Match, group: ParallelGroup, divisible: bool) -> NoMatch | None:
    tokens: Any = match.tensor("x").shape[0]
    number = tokens.node.expr if isinstance(tokens, torch.SymInt) else tokens
    if number % group.size == 0 or (divisible and not isinstance(tokens, int)):
        return None
    return NoMatch(f"{tokens} tokens are not known to divide by {group.size} ranks")


def _rewrite(
    match: Match, build: GraphBuilder, *, groups: tuple[ParallelGroup, ...]
) -> dict[str, Node]:
    group, bound, x = group_of(match, groups), match.bound, match.tensor("x")
    reduces = "operation" in bound
    tokens = x.shape[0] if reduces else x.shape[0] * group.size
    rows = x.shape[0] // group.size if reduces else x.shape[0]
    shard = x.new_empty((rows, *x.shape[1:]))
    whole = x.new_empty((tokens, *x.shape[1:]))
    own = match.node("x")
    if reduces:
        arguments = (own, "sum", group.size, group.name)
        own = build_collective(build, REDUCE_SCATTER, *arguments, val=shard)
    if "extra" in bound:
        extra = _own_part(match.node("extra"), group, shard, build)
        own = build.call("aten::add.Tensor", own, extra, val=shard)
    weight, epsilon = bound["weight"], bound["epsilon"]
    rstd = x.new_empty((rows, 1), dtype=torch.float32)
    if "residual" in bound:
        residual = _own_part(match.node("residual"), group, shard, build)
        normed = build.call(
            "npu::npu_add_rms_norm", own, residual, weight, epsilon, val=(shard, rstd, shard)
        )
        results = {"normed": build.element(normed, 0)}
        if "total" in match.needed:
            results["total"] = build.element(normed, 2)
    else:
        normed = build.call("npu::npu_rms_norm", own, weight, epsilon, val=(shard, rstd))
        results = {"normed": build.element(normed, 0), "total": own}
    return {
        name: build_collective(build, ALL_GATHER, each, group.size, group.name, val=whole)
        for name, each in results.items()
        if name in match.needed
    }


def _own_part(whole: Node, group: ParallelGroup, shard: Tensor, build: GraphBuilder) -> Node:
    parts = build.call("aten::chunk", whole, group.size, 0, val=[shard] * group.size)
    return build.element(parts, group.rank)


def shard_all_reduce_norm(
    groups: tuple[ParallelGroup, ...], *, tokens_divide: bool = False
) -> Rule:
    """Return the rule that normalises a shard if all ranks have the input of a norm.

    Sequence parallelism: each rank normalises its own part of the tokens. The two collectives move
    as many bytes as the all-reduce. The norm and what is fused with it work on a part, and the
    residual stays sharded: its all-gather and the chunk of the next layer cancel out by
    `remove_gather_of_own_shard`, which belongs into the same pass. The graph is equivalent after
    each rewrite; no step relies on another.

    With a residual, before or after `fuse_add_rms_norm`, or without one (the first layer), and with
    an optional preceding addition. If the rows come from an all-gather, nothing is scattered: the
    norm works on the input of the all-gather, if the whole result is normalised. Pays off for many
    tokens; use `PassSelection` with a `TokenRange` for this.

    Sums may be computed in another order, and a fused kernel rounds differently: the numerics are
    `rounding`.

    Args:
        groups: The groups whose all-reduces may be rewritten.
        tokens_divide: Whether the caller pads numbers of tokens that the graph does not know to
            multiples of the number of ranks. If a number is unknown and not padded, the rule
            does not apply.
    """
    return Rule(
        name="shard_all_reduce_norm",
        patterns=_patterns(),
        check=partial(_check, groups=groups, divisible=tokens_divide),
        rewrite=partial(_rewrite, groups=groups),
        operators=(ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, WAIT, *NORMS),
        numerics="rounding",
        accepts_cost=True,
    )
