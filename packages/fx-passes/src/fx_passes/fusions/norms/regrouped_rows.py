"""Views between a norm and operators on its rows that change the number of leading dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import sizes_equal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


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
