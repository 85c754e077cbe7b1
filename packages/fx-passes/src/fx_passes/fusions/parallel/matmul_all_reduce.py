"""A matrix product and the all-reduce of its parts, fused into `npu::npu_mm_all_reduce_base`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.fusions.parallel.collectives import (
    ALL_REDUCE,
    WAIT,
    ParallelGroup,
    group_of,
    reduced,
)
from fx_passes.matching.combined_pattern import calling, combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, on_npu, rank_is, same_dtype
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# aclnnMatmulAllReduce on A2: these many ranks, all connected to each other.
_SIZES = (1, 2, 4, 8)
_DEVICE = "Ascend910B"
_RANKS_OF_X = (2, 3)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Linked:
    return label(torch.ops.aten.linear(x, weight, bias), "linear"), {}


def _addmm(x: Tensor, weight: Tensor, bias: Tensor) -> Linked:
    return torch.ops.aten.addmm(bias, x, weight), {}


def _reduced(product: Tensor, operation: str, group: str) -> Linked:
    return None, {"y": reduced(product, operation, group)}


_MM, _MATMUL = (
    calling(product, weight="Tensor")
    for product in (torch.ops.aten.mm.default, torch.ops.aten.matmul.default)
)
_PATTERNS = tuple(combine(product, _reduced) for product in (_linear, _MM, _addmm, _MATMUL))


def _check(match: Match, *, groups: tuple[ParallelGroup, ...], soc: str) -> NoMatch | None:
    bound = match.bound
    bias = ("bias",) if isinstance(bound.get("bias"), Node) else ()
    unmet = (
        on_npu(match, "x")
        or dtype_in(match, "x", torch.bfloat16, torch.float16)
        or same_dtype(match, "x", "weight", *bias)
        or rank_is(match, 2, "weight")
        or rank_is(match, 1, *bias)
    )
    if unmet is None and bound["operation"] != "sum":
        unmet = NoMatch(f"the parts are reduced by {bound['operation']!r}; the kernel sums")
    return unmet or _device_problem(match, groups, soc)


def _device_problem(match: Match, groups: tuple[ParallelGroup, ...], soc: str) -> NoMatch | None:
    group, x = group_of(match, groups), match.tensor("x")
    problem = ""
    if x.dim() not in _RANKS_OF_X:
        problem = f"`x` has {x.dim()} dimensions; the kernel takes 2 or 3"
    elif not group.communicator:
        problem = f"the group {group.name!r} has no HCCL communicator"
    elif group.size not in _SIZES:
        problem = f"the group {group.name!r} has {group.size} ranks; the kernel takes {_SIZES}"
    elif soc and not soc.startswith(_DEVICE):
        problem = f"the kernel exists on {_DEVICE}; the rule was made for {soc}"
    return NoMatch(problem) if problem else None


def _rewrite(
    match: Match, build: GraphBuilder, *, groups: tuple[ParallelGroup, ...]
) -> dict[str, Node]:
    weight, bound = match.node("weight"), match.bound
    if "linear" in match.labels:
        weight = build.call("aten::t", weight, val=match.tensor("weight").t())
    fused = build.call(
        "npu::npu_mm_all_reduce_base",
        bound["x"],
        weight,
        group_of(match, groups).communicator,
        bias=bound.get("bias"),
        val=match.value("y"),
    )
    return {"y": fused}


def fuse_matmul_all_reduce(groups: tuple[ParallelGroup, ...], *, soc: str = "") -> Rule:
    """Return the rule `all_reduce(x @ weight)` to `npu_mm_all_reduce_base`.

    For the row-parallel projections of tensor parallelism: `linear`, `mm`, `addmm` or `matmul`,
    with or without a bias, and the functional all-reduce with its wait. The kernel communicates
    while it computes. After it `fuse_add_rms_norm` fuses the residual addition and the norm.

    Only pays for many tokens, as the documents say: prefill, not decoding. Leave it to
    `PassSelection` with a `TokenRange`. Not in `default_npu_pipeline`, as only the caller knows the
    communicators.

    The product is rounded once after the sum where it was rounded on each rank before: the
    numerics are `rounding`. Source of the table: aclnnMatmulAllReduce on A2 takes float16 and
    bfloat16, 2 or 3 dimensions by 2, and 1, 2, 4 or 8 ranks.

    Args:
        groups: The groups whose all-reduces may be fused, each with its communicator.
        soc: Name of the device as `torch.npu.get_device_name()` gives it; empty for any.
    """
    return Rule(
        name="fuse_matmul_all_reduce",
        patterns=_PATTERNS,
        check=partial(_check, groups=groups, soc=soc),
        rewrite=partial(_rewrite, groups=groups),
        operators=(ALL_REDUCE, WAIT, "npu::npu_mm_all_reduce_base"),
        numerics="rounding",
    )
