"""The values over which `reinplace` may write a newer one."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of
from fx_passes.matching.requirements import shapes_equal
from fx_passes.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
# Operators that an in-place spelling was probably behind: the result is the first argument but for
# some elements. Others are written in place only where the graph copies the result into an input.
_WRITES_A_PART = frozenset(
    {
        "copy",
        "index_put",
        "index_copy",
        "index_add",
        "index_fill",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "masked_scatter",
        "npu_scatter_nd_update",
        "scatter_update",
        "as_strided_scatter",
        "diagonal_scatter",
        "select_scatter",
        "slice_scatter",
    }
)


def writes_a_part(target: object) -> bool:
    """Return whether an operator returns its first argument with some elements replaced."""
    return isinstance(target, OpOverload) and operator_name(target) in _WRITES_A_PART


def operator_name(target: OpOverload) -> str:
    """Return the name of an operator without its namespace."""
    return str(schema_of(target).name).partition("::")[2]


def overwritten_values(node: Node, owner_of: Callable[[Node], Node]) -> list[Node]:
    """Return the values in whose memory a node's value may be after `reinplace`.

    Args:
        node: A call that allocates its result.
        owner_of: Returns the node that allocated the memory of a value.
    """
    calls, bases = [node], []
    while (base := _base(calls[-1])) is not None:
        bases.append(base)
        calls.append(owner_of(base))
    root = calls[-1]
    if root.op == "placeholder" and any(
        user.target is aten.copy_.default and user.args[0] is root for user in root.users
    ):
        return bases
    parts = takewhile(lambda call: writes_a_part(call.target), calls)
    return bases[: len(list(parts))]


def _base(node: Node) -> Node | None:
    """Return the first argument of a call if the result has its shape and dtype."""
    base = node.args[0] if node.args and isinstance(node.target, OpOverload) else None
    if not isinstance(base, Node):
        return None
    x, y = value_of(base), value_of(node)
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return None
    return base if x.dtype == y.dtype and shapes_equal(x.shape, y.shape) else None
