"""The opening of fusions that begin with RMSNorm: patterns and conditions, views of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes.matching.combined_pattern import calling, combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, rank_is, same_dtype, same_shape, sizes_equal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Pattern


NORMS = ("npu::npu_rms_norm", "npu::npu_add_rms_norm")
"""The operators of the patterns."""


def joined(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """Add a residual and normalise the sum, as engines for NPUs write it; a link of `combine`."""
    added = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "total_source")
    return added[0], {"total": added[2]}


def _separate(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """As an addition and a norm."""
    total = label(x + residual, "total_source")
    return torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0], {"total": total}


def alone(x: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """Normalise without a residual in a pattern; a link of `combine`."""
    return torch.ops.npu.npu_rms_norm(x, weight, epsilon)[0], {}


_shifted = calling(torch.ops.aten.add.Tensor, beta="Tensor")


def residual_norm_patterns(*closing: Link) -> tuple[Pattern, ...]:
    """Return the patterns of a residual add, RMSNorm, an optional bias, and further links.

    Their inputs are `x`, `residual`, `weight`, `epsilon`, optionally `beta`, and those of the
    links; the output `total` is the sum, and the label `total_source` is on the node that computes
    it.
    """
    openings = ((opening, *shift) for shift in ((), (_shifted,)) for opening in (joined, _separate))
    return tuple(combine(*opening, *closing) for opening in openings)


def norm_patterns(closing: Link) -> tuple[Pattern, ...]:
    """Return the same for a norm of `x` alone."""
    return combine(alone, closing), combine(alone, _shifted, closing)


def norm_problem(match: Match) -> NoMatch | None:
    """Return why a norm of `x` by `weight`, with or without a residual or `beta`, is not fused.

    The table of all fused kernels with quantisation: bfloat16 or float16 throughout, a weight of
    one dimension, a bias like it.
    """
    # npu_add_rms_norm does not broadcast either, so this concerns additions only.
    added = ("residual",) if isinstance(match.value("total_source"), torch.Tensor) else ()
    bias = () if match.bound.get("beta") is None else ("beta",)
    return (
        same_shape(match, "x", *added)
        or same_dtype(match, "x", *added, "weight")
        or dtype_in(match, "x", torch.bfloat16, torch.float16)
        or rank_is(match, 1, "weight")
        or same_shape(match, "weight", *bias)
        or same_dtype(match, "weight", *bias)
    )


def sum_value(match: Match) -> object:
    """Return the fake value of the sum, which a match may hold though the graph does not use it."""
    source = match.value("total_source")
    return source[2] if isinstance(source, (tuple, list)) else source


def reshaped_rows(normed: Tensor, shape: Sequence[int]) -> Linked:
    """View or reshape the result of a norm in a pattern; a link of `combine`."""
    return label(torch.ops.aten.reshape(normed, shape), "rows"), {}


def flattened_rows(normed: Tensor, first: int, last: int) -> Linked:
    """Flatten dimensions of a norm's result, as Dynamo graphs write it; a link of `combine`."""
    return label(torch.ops.aten.flatten.using_ints(normed, first, last), "rows"), {}


def rows_problem(match: Match) -> NoMatch | None:
    """Return why the view of a match, if it has one, does not keep the rows of `x`, or None."""
    if "rows" not in match.labels:
        return None
    x, rows = match.tensor("x"), match.tensor("rows")
    if x.dim() < 2 or rows.dim() < 2 or not sizes_equal(x.shape[-1], rows.shape[-1]):
        return NoMatch(
            f"`{match.labels['rows'].name}` views {list(x.shape)} as {list(rows.shape)}, which "
            "does not keep the rows",
            (match.labels["rows"],),
        )
    return None


def regroup(
    match: Match, build: GraphBuilder, source: Node, *, val: object, one_each: bool = False
) -> Node:
    """Return a contiguous `source` of the shape of `x` with the view that a match has of the norm.

    With `one_each` it has one number per row, so no last dimension.
    """
    bound: Mapping[str, Any] = match.bound
    rank = match.tensor("x").dim()
    if "shape" in bound:
        shape = bound["shape"]
        return build.call("aten::reshape", source, list(shape[:-1] if one_each else shape), val=val)
    # Counted from the end they would mean other dimensions of a value without the last.
    dims = bound["first"] % rank, bound["last"] % rank
    return build.call("aten::flatten.using_ints", source, *dims, val=val)
