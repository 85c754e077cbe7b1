"""Decides whether an operator that returns dense memory may replace one with strided results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import value_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import is_dense
from fx_passes.memory import views_of
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from torch.fx import Node


def dense_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same shape and dtype that is contiguous."""
    return tensor.new_empty(tensor.shape)


def layout_problem(match: Match, output: str) -> NoMatch | None:
    """Return why an output must keep its strides, or None if contiguous memory is fine.

    Elementwise operators keep the order of dimensions in memory that their input has; fused
    kernels write contiguous memory. A `view` of the result, also through other views or through
    elementwise operators, may be legal for one and not for the other.
    """
    value, node = match.value(output), match.outputs.get(output)
    if node is None or (isinstance(value, torch.Tensor) and is_dense(value)):
        return None
    pending, seen = [node], {node}
    while pending:
        source = pending.pop()
        views = set(views_of(source, match.effects))
        for user in source.users:
            if user.target is torch.ops.aten.view.default:
                return NoMatch(
                    f"`{user.name}` views `{node.name}`, whose memory is not contiguous; the "
                    "kernel would return contiguous memory, for which the view may be illegal",
                    (node, user),
                )
            if user not in seen and (user in views or _is_laid_out_by_operands(user)):
                seen.add(user)
                pending.append(user)
    return None


def _is_laid_out_by_operands(node: Node) -> bool:
    target, value = node.target, value_of(node)
    if not isinstance(target, OpOverload):
        return False
    if isinstance(value, torch.Tensor) and is_dense(value):
        # It is so for operands that are not, such as a copy in contiguous memory.
        return False
    casts = {torch.ops.aten.to, torch.ops.aten._to_copy}  # noqa: SLF001 - name of an operator
    return torch.Tag.pointwise in target.tags or target.overloadpacket in casts
