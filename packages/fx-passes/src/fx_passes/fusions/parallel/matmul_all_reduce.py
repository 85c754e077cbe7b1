"""A matrix product and the all-reduce of its parts, fused into `npu::npu_mm_all_reduce_base`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.parallel.parallel_group import ParallelGroup, group_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.rewriting.graph_builder import GraphBuilder


# aclnnMatmulAllReduce on A2: these many ranks, all connected to each other.
_SIZES = (1, 2, 4, 8)
_DEVICE = "Ascend910B"
_RANKS_OF_X = (2, 3)


def _reduced(product: Tensor, operation: str, group: str) -> Tensor:
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_reduce(product, operation, group))
    return waited


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, operation: str, group: str
) -> dict[str, Tensor]:
    product = label(torch.ops.aten.linear(x, weight, bias), "linear")
    return {"y": _reduced(product, operation, group)}


def _mm(x: Tensor, weight: Tensor, operation: str, group: str) -> dict[str, Tensor]:
    return {"y": _reduced(torch.ops.aten.mm(x, weight), operation, group)}


def _addmm(
    x: Tensor, weight: Tensor, bias: Tensor, operation: str, group: str
) -> dict[str, Tensor]:
    product = torch.ops.aten.addmm(bias, x, weight)
    return {"y": _reduced(product, operation, group)}


def _matmul(x: Tensor, weight: Tensor, operation: str, group: str) -> dict[str, Tensor]:
    return {"y": _reduced(torch.ops.aten.matmul(x, weight), operation, group)}


def _check(match: Match, *, groups: tuple[ParallelGroup, ...], soc: str) -> NoMatch | None:
    bound = match.bound
    biased = isinstance(bound.get("bias"), Node)
    bias = (Requirement.rank("bias", 1), Requirement.same_dtype("x", "bias")) if biased else ()
    unmet = first_unmet(
        match,
        Requirement.on_npu("x"),
        Requirement.dtype_in("x", torch.bfloat16, torch.float16),
        Requirement.same_dtype("x", "weight"),
        Requirement.rank("weight", 2),
        *bias,
    )
    if unmet is None and bound["operation"] != "sum":
        unmet = NoMatch(f"the parts are reduced by {bound['operation']!r}; the kernel sums")
    return unmet or _device_problem(match, groups, soc)


def _device_problem(match: Match, groups: tuple[ParallelGroup, ...], soc: str) -> NoMatch | None:
    group, x = group_of(match, groups), match.value("x")
    if isinstance(group, NoMatch):
        return group
    problem = ""
    if isinstance(x, torch.Tensor) and x.dim() not in _RANKS_OF_X:
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
    group, weight, bound = group_of(match, groups), match.node("weight"), match.bound
    if isinstance(group, NoMatch):
        raise RuleError("building npu_mm_all_reduce_base: the match was not checked")
    if "linear" in match.labels:
        weight = build.call("aten::t", weight, val=match.tensor("weight").t())
    fused = build.call(
        "npu::npu_mm_all_reduce_base",
        bound["x"],
        weight,
        group.communicator,
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
        patterns=(_linear, _mm, _addmm, _matmul),
        check=partial(_check, groups=groups, soc=soc),
        rewrite=partial(_rewrite, groups=groups),
        operators=(
            "_c10d_functional::all_reduce",
            "_c10d_functional::wait_tensor",
            "npu::npu_mm_all_reduce_base",
        ),
        numerics="rounding",
    )
