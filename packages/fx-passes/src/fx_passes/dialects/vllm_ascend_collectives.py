"""Collectives of vLLM-Ascend's graphs, as the functional collectives that the rules know."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.parallel.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    WAIT,
    build_collective,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import same_shape
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


# vLLM's name of the group whose ranks `sequence_parallel_chunk_impl` cuts by.
_TENSOR_PARALLEL = "tp:"


def _gemm(x: Tensor, weight: Tensor, bias: Tensor | None, group: str) -> dict[str, Tensor]:
    product = torch.ops.vllm.unquantized_gemm(x, weight, bias)
    return {"reduced": torch.ops.vllm.all_reduce(product, group)}


def _all_reduce(x: Tensor, group: str) -> dict[str, Tensor]:
    return {"reduced": torch.ops.vllm.all_reduce(x, group)}


def _all_gather(x: Tensor, dim: int, size: int, group: str) -> dict[str, Tensor]:
    return {"whole": torch.ops.vllm.all_gather(x, dim, size, group)}


def _own_chunk(x: Tensor, dim: int, size: int, group: str) -> dict[str, Tensor]:
    whole = torch.ops.vllm.all_gather(x, dim, size, group)
    return {"whole": whole, "own": torch.ops.vllm.sequence_parallel_chunk_impl(whole)}


def _chunk_residual(x: Tensor, residual: Tensor) -> dict[str, Tensor]:
    return {"chunk": torch.ops.vllm.maybe_chunk_residual(x, residual)}


def _check_collective(match: Match, *, process_groups: Mapping[str, str]) -> NoMatch | None:
    if match.bound["group"] in process_groups:
        return _dimension_problem(match)
    known = ", ".join(map(repr, process_groups)) or "none"
    return NoMatch(
        f"the process group of {match.bound['group']!r} is not known; those given are of: {known}"
    )


def _dimension_problem(match: Match) -> NoMatch | None:
    if match.bound.get("dim", 0) == 0:
        return None
    return NoMatch(f"gathered along dimension {match.bound['dim']}, not the first")


def _check_own_chunk(match: Match) -> NoMatch | None:
    unmet = _dimension_problem(match) or same_shape(match, "x", "own")
    group = match.bound["group"]
    if unmet is None and not str(group).startswith(_TENSOR_PARALLEL):
        return NoMatch(f"gathered from the group {group!r}; the chunk is that of a rank of `tp`")
    return unmet


def _check_chunk_residual(match: Match, *, whole_residuals: bool) -> NoMatch | None:
    if not whole_residuals:
        return NoMatch(
            "whether the residual is cut to a part is known at run time only; an engine without "
            "sequence parallelism says so by `whole_residuals=True`"
        )
    return same_shape(match, "x", "residual")


def _rewrite_all_reduce(
    match: Match, build: GraphBuilder, *, process_groups: Mapping[str, str]
) -> dict[str, Node]:
    bound, value = match.bound, match.value("reduced")
    name, x = process_groups[str(bound["group"])], bound["x"]
    if "weight" in bound:
        x = build.call("aten::linear", x, bound["weight"], bound["bias"], val=value)
    return {"reduced": build_collective(build, ALL_REDUCE, x, "sum", name, val=value)}


def _rewrite_gather(
    match: Match, build: GraphBuilder, *, process_groups: Mapping[str, str]
) -> dict[str, Node]:
    name, value = process_groups[str(match.bound["group"])], match.value("whole")
    arguments = (*match.arguments("x", "size"), name)
    return {"whole": build_collective(build, ALL_GATHER, *arguments, val=value)}


def _rewrite_own_chunk(match: Match, build: GraphBuilder) -> dict[str, Node]:
    replaced = {"own": match.node("x")}
    if "whole" in match.needed:
        arguments = match.arguments("x", "dim", "size", "group")
        replaced["whole"] = build.call("vllm::all_gather", *arguments, val=match.value("whole"))
    return replaced


def _rewrite_chunk_residual(match: Match, build: GraphBuilder) -> dict[str, Node]:
    del build
    return {"chunk": match.node("residual")}


def collective_rules(
    process_groups: Mapping[str, str], *, whole_residuals: bool
) -> tuple[Rule, ...]:
    """Return the rules for collectives, and for tensors that are chunked depending on them."""
    groups = dict(process_groups)
    return (
        Rule(
            name="vllm_ascend_chunk_residual",
            patterns=(_chunk_residual,),
            check=partial(_check_chunk_residual, whole_residuals=whole_residuals),
            rewrite=_rewrite_chunk_residual,
            operators=("vllm::maybe_chunk_residual",),
            shares_memory=True,
        ),
        Rule(
            name="vllm_ascend_own_chunk",
            patterns=(_own_chunk,),
            check=_check_own_chunk,
            rewrite=_rewrite_own_chunk,
            operators=("vllm::all_gather", "vllm::sequence_parallel_chunk_impl"),
            shares_memory=True,
        ),
        *(
            Rule(
                name=f"vllm_ascend_{name}",
                patterns=(pattern,),
                check=partial(_check_collective, process_groups=groups),
                rewrite=partial(_rewrite_all_reduce, process_groups=groups),
                operators=(*gemm, "vllm::all_reduce", ALL_REDUCE, WAIT),
                numerics="rounding",
            )
            for name, pattern, gemm in (
                ("gemm_all_reduce", _gemm, ("vllm::unquantized_gemm",)),
                ("all_reduce", _all_reduce, ()),
            )
        ),
        Rule(
            name="vllm_ascend_all_gather",
            patterns=(_all_gather,),
            check=partial(_check_collective, process_groups=groups),
            rewrite=partial(_rewrite_gather, process_groups=groups),
            operators=("vllm::all_gather", ALL_GATHER, WAIT),
        ),
    )
