"""All-reduce + norm rewritten to work on a part of the tokens on each rank."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.fusions.parallel.parallel_group import ParallelGroup, group_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["shard_all_reduce_norm"]


def _reduced(x: Tensor, operation: str, group: str) -> Tensor:
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_reduce(x, operation, group))
    return waited


def _joined(
    x: Tensor, operation: str, group: str, residual: Tensor, weight: Tensor, epsilon: float
) -> dict[str, Tensor]:
    reduced = _reduced(x, operation, group)
    added = torch.ops.npu.npu_add_rms_norm(reduced, residual, weight, epsilon)
    return {"normed": added[0], "total": label(added[2], "total")}


def _joined_turned_round(
    x: Tensor, operation: str, group: str, residual: Tensor, weight: Tensor, epsilon: float
) -> dict[str, Tensor]:
    reduced = _reduced(x, operation, group)
    added = torch.ops.npu.npu_add_rms_norm(residual, reduced, weight, epsilon)
    return {"normed": added[0], "total": label(added[2], "total")}


def _separate(
    x: Tensor, operation: str, group: str, residual: Tensor, weight: Tensor, epsilon: float
) -> dict[str, Tensor]:
    total = _reduced(x, operation, group) + residual
    normed = torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0]
    return {"normed": normed, "total": total}


def _first(
    x: Tensor, operation: str, group: str, weight: Tensor, epsilon: float
) -> dict[str, Tensor]:
    """Of the first layer: the sum is the residual of those that follow."""
    total = _reduced(x, operation, group)
    return {"normed": torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0], "total": total}


def _check(match: Match, *, groups: tuple[ParallelGroup, ...], divisible: bool) -> NoMatch | None:
    group = group_of(match, groups)
    if isinstance(group, NoMatch):
        return group
    residual = (
        (Requirement.same_shape("x", "residual"), Requirement.same_dtype("x", "residual"))
        if "residual" in match.bound
        else ()
    )
    unmet = first_unmet(
        match,
        Requirement.dtype_in("x", torch.bfloat16, torch.float16, torch.float32),
        Requirement.rank("x", 2),
        Requirement.rank("weight", 1),
        Requirement.same_dtype("x", "weight"),
        *residual,
    )
    if unmet is None and match.bound["operation"] != "sum":
        unmet = NoMatch(f"the parts are reduced by {match.bound['operation']!r}, not summed")
    return unmet or _division_problem(match, group, divisible)


def _division_problem(match: Match, group: ParallelGroup, divisible: bool) -> NoMatch | None:
    tensors = match.tensors("x")
    if isinstance(tensors, NoMatch):
        return tensors
    tokens = tensors[0].shape[0]
    known = all(isinstance(size, int) for size in (tokens,))
    if sizes_equal(_remainder(tokens, group.size), 0) or (divisible and not known):
        return None
    return NoMatch(f"{tokens} tokens are not known to divide by {group.size} ranks")


def _remainder(tokens: object, size: int) -> object:
    if isinstance(tokens, torch.SymInt):
        return tokens.node.expr % size
    return tokens % size if isinstance(tokens, int) else None


def _rewrite(
    match: Match, build: GraphBuilder, *, groups: tuple[ParallelGroup, ...]
) -> dict[str, Node]:
    group, bound, tensors = group_of(match, groups), match.bound, match.tensors("x")
    if isinstance(group, NoMatch) or isinstance(tensors, NoMatch):
        raise RuleError("sharding all-reduce and norm: the match was not checked")
    (x,) = tensors
    shard = x.new_empty((x.shape[0] // group.size, *x.shape[1:]))
    rstd = x.new_empty((shard.shape[0], 1), dtype=torch.float32)
    started = build.call(
        "_c10d_functional::reduce_scatter_tensor",
        bound["x"],
        "sum",
        group.size,
        group.name,
        val=shard,
    )
    scattered = build.call("_c10d_functional::wait_tensor", started, val=shard)
    if "residual" in bound:
        parts = build.call(
            "aten::chunk", bound["residual"], group.size, 0, val=[shard] * group.size
        )
        own = build.element(parts, group.rank)
        normed = build.call(
            "npu::npu_add_rms_norm",
            scattered,
            own,
            bound["weight"],
            bound["epsilon"],
            val=(shard, rstd, shard),
        )
        results = {"normed": build.element(normed, 0)}
        if "total" in match.needed:
            results["total"] = build.element(normed, 2)
    else:
        normed = build.call(
            "npu::npu_rms_norm", scattered, bound["weight"], bound["epsilon"], val=(shard, rstd)
        )
        results = {"normed": build.element(normed, 0), "total": scattered}
    return {
        name: _gathered(results[name], group, x, build) for name in results if name in match.needed
    }


def _gathered(shard: Node, group: ParallelGroup, x: Tensor, build: GraphBuilder) -> Node:
    whole = x.new_empty(x.shape)
    started = build.call(
        "_c10d_functional::all_gather_into_tensor", shard, group.size, group.name, val=whole
    )
    return build.call("_c10d_functional::wait_tensor", started, val=whole)


def shard_all_reduce_norm(
    groups: tuple[ParallelGroup, ...], *, tokens_divide: bool = False
) -> tuple[Rule, ...]:
    """Return the rule all-reduce + norm to reduce-scatter, norm of a shard, all-gather.

    Sequence parallelism: each rank normalises its own part of the tokens. The two collectives move
    as many bytes as the all-reduce; the norm and what is fused with it work on a part, and the
    residual stays sharded: its all-gather and the chunk of the next layer cancel out by
    `remove_gather_of_own_shard`, which belongs into the same pass. The graph means the same after
    each rewrite; no step relies on another.

    With a residual, before or after `fuse_add_rms_norm`, or without one (the first layer). Pays for
    many tokens; leave that to `PassSelection` with a `TokenRange`.

    Sums may be added up in another order, and a fused kernel rounds elsewhere: the numerics are
    `rounding`.

    Args:
        groups: The groups whose all-reduces may be rewritten.
        tokens_divide: Whether the caller pads numbers of tokens that the graph does not know, so
            that they divide by the number of ranks. Where that is not so and not known, the rule
            does not apply.
    """
    rule = Rule(
        name="shard_all_reduce_norm",
        patterns=(_joined, _joined_turned_round, _separate, _first),
        check=partial(_check, groups=groups, divisible=tokens_divide),
        rewrite=partial(_rewrite, groups=groups),
        operators=(
            "_c10d_functional::all_reduce",
            "_c10d_functional::reduce_scatter_tensor",
            "_c10d_functional::all_gather_into_tensor",
            "_c10d_functional::wait_tensor",
            "npu::npu_rms_norm",
            "npu::npu_add_rms_norm",
        ),
        numerics="rounding",
    )
    return (rule,)
