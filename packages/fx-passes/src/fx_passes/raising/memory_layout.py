"""Whether a new operator that returns dense memory may stand where strided memory was returned."""

from __future__ import annotations

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import is_dense
from fx_passes.memory import views_of

__all__ = ["dense_like", "layout_problem"]


def dense_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same shape and dtype that is contiguous."""
    return tensor.new_empty(tensor.shape)


def layout_problem(match: Match, output: str) -> NoMatch | None:
    """Return why an output must keep its strides, or None where contiguous memory does as well.

    Elementwise operators keep the order of dimensions in memory that their input has; fused
    kernels write contiguous memory. A `view` of the result, also through other views, may be legal
    for the one and not for the other.

    Args:
        match: The match.
        output: Name of the output that the new operator would return contiguous.
    """
    value, node = match.value(output), match.outputs.get(output)
    if node is None or (isinstance(value, torch.Tensor) and is_dense(value)):
        return None
    for user in views_of(node, match.effects):
        if user.target is torch.ops.aten.view.default:
            return NoMatch(
                f"`{user.name}` views `{node.name}`, whose memory is not contiguous; the kernel "
                "would return contiguous memory, for which the view may be illegal",
                (node, user),
            )
    return None
