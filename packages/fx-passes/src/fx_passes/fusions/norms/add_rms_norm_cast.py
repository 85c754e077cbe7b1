"""Residual add + RMSNorm whose result is wanted in float32 too, in `npu::npu_add_rms_norm_cast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.norms.residual_norm import (
    NORMS,
    flattened_rows,
    regroup,
    reshaped_rows,
    rows_problem,
)
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, rank_is, same_dtype, same_shape
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Pattern


_HIGHEST_RANK = 8
# npu_rms_norm gives the norm and rstd, npu_add_rms_norm the sum as well.
_RESULTS_WITHOUT_SUM = 2


def _joined(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    norm = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "norm")
    normed = norm[0]
    return normed, {"normed": normed, "rstd": norm[1], "total": norm[2]}


def _separate(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    total = x + residual
    norm = label(torch.ops.npu.npu_rms_norm(total, weight, epsilon), "norm")
    normed = norm[0]
    return normed, {"normed": normed, "rstd": norm[1], "total": total}


def _kept(rows: Tensor) -> Linked:
    """Hand the rows out as well: the experts after a gate take them as they are."""
    return rows, {"regrouped": rows}


def _to(values: Tensor, dtype: torch.dtype) -> Linked:
    return None, {"wide": torch.ops.aten.to.dtype(values, dtype)}


def _copied(values: Tensor, dtype: torch.dtype) -> Linked:
    """As AOTAutograd writes it."""
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    return None, {"wide": cast(values, dtype=dtype)}


def _npu_cast(values: Tensor, dtype: torch.dtype) -> Linked:
    """As npugraph_ex writes it."""
    cast = torch.ops.npu._npu_dtype_cast  # noqa: SLF001 - the name of the operator
    return None, {"wide": cast(values, dtype)}


def _behind_norms(*links: Link) -> tuple[Pattern, ...]:
    return tuple(combine(opening, *links) for opening in (_joined, _separate))


def _check(match: Match) -> NoMatch | None:
    dtype, rank = match.bound["dtype"], match.tensor("x").dim()
    if dtype is not torch.float32:
        return NoMatch(f"a cast to {dtype}; the kernel casts to torch.float32")
    if rank > _HIGHEST_RANK:
        return NoMatch(f"`x` has {rank} dimensions; the kernel takes 1 to {_HIGHEST_RANK}")
    # npu_add_rms_norm does not broadcast either, so this concerns additions only.
    added = ("residual",) if len(match.results("norm")) == _RESULTS_WITHOUT_SUM else ()
    return (
        same_shape(match, "x", *added)
        or same_dtype(match, "x", "residual", "weight")
        or dtype_in(match, "x", torch.bfloat16, torch.float16)
        or rank_is(match, 1, "weight")
        or rows_problem(match)
    )


def _build(match: Match, build: GraphBuilder) -> Node:
    """Return the call whose results are the norm in float32, the norm, rstd and the sum."""
    normed, rstd, *total = match.results("norm")
    arguments = match.arguments("x", "residual", "weight", "epsilon")
    known = (normed.to(torch.float32), normed, rstd, *(total or [match.tensor("total")]))
    return build.call("npu::npu_add_rms_norm_cast", *arguments, val=known)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = _build(match, build)
    return build.elements(fused, {"wide": 0, "normed": 1, "rstd": 2, "total": 3})


def _rewrite_regrouped(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = _build(match, build)
    found = build.elements(fused, {"rstd": 2, "total": 3})
    if "wide" in match.needed:
        wide = build.element(fused, 0)
        found["wide"] = regroup(match, build, wide, val=match.value("wide"))
    if not match.needed.isdisjoint({"normed", "regrouped"}):
        normed = build.element(fused, 1)
        if "normed" in match.needed:
            found["normed"] = normed
        if "regrouped" in match.needed:
            found["regrouped"] = regroup(match, build, normed, val=match.value("regrouped"))
    return found


def fuse_add_rms_norm_cast() -> tuple[Rule, ...]:
    """Return the rules residual add + RMSNorm + cast to float32 to one operator.

    Matches mixtures of experts, whose gate reads the norm in float32 and whose experts read it
    unchanged. After `npu_add_rms_norm` or after an addition and `npu_rms_norm`; any eps; with and
    without other uses of the norm, of the sum and of rstd. The second rule is for a view before
    the cast that keeps the rows, `view(-1, hidden)` or `flatten(0, 1)`, which may also have other
    uses.

    Source of the dtype table: aclnnAddRmsNormCast accepts x1, x2 and gamma of one type, float16 or
    bfloat16, with 1 to 8 dimensions; x1 and x2 have the same shape; its float32 result is the
    rounded one. Norms with quantisation are left to the quantisation rules. The kernel does not
    round intermediate values as the operators do: the numerics are `rounding`.
    """
    operators = (*NORMS, "npu::_npu_dtype_cast", "npu::npu_add_rms_norm_cast")
    casts = (_to, _copied, _npu_cast)
    plain = [pattern for cast in casts for pattern in _behind_norms(cast)]
    views = [(reshaped_rows, cast) for cast in casts] + [(flattened_rows, _to)]
    regrouped = [pattern for view, cast in views for pattern in _behind_norms(view, _kept, cast)]
    return tuple(
        Rule(
            name=name,
            patterns=tuple(patterns),
            check=_check,
            rewrite=rewrite,
            operators=operators,
            numerics="rounding",
        )
        for name, patterns, rewrite in (
            ("fuse_add_rms_norm_cast", plain, _rewrite),
            ("fuse_add_rms_norm_view_cast", regrouped, _rewrite_regrouped),
        )
    )
