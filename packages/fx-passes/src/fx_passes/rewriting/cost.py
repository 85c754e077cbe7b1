"""What a rewrite costs beside what it saves: operators launched, and bytes read and written."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fx_passes.graph_argument import value_of
from fx_passes.matching.match import NoMatch
from fx_passes.torch_internals import OpOverload, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Node

    from fx_passes.memory import EffectTable

__all__ = ["Cost", "cost_of", "cost_problem"]

# Launches of operators of which the number cannot be seen: all others launch once, and views, taken
# elements and what is computed from numbers alone do not launch.
_LAUNCHES = MappingProxyType(
    {
        "_c10d_functional::wait_tensor": 0,
        "aten::contiguous": 1,
    }
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What running some nodes once costs.

    Attributes:
        launches: Operators that are launched.
        bytes: What they read and write: a number, or an expression in symbolic sizes.
    """

    launches: int
    bytes: Any


def cost_of(nodes: Iterable[Node], effects: EffectTable) -> Cost:
    """Return what some nodes cost, judged by their operators and fake values.

    Nodes that only read what the module holds cost nothing: `FoldConstantsPass` computes them once.
    """
    launches, moved = 0, 0
    for node in nodes:
        count = _launches(node, effects)
        if count:
            launches += count
            moved = moved + sum(map(_bytes, (node, *node.all_input_nodes)))
    return Cost(launches=launches, bytes=moved)


def cost_problem(
    removed: Iterable[Node], created: Iterable[Node], effects: EffectTable
) -> NoMatch | None:
    """Return why new nodes are worse than those they replace, with the figures, or None.

    They are if they launch more, or launch as many and surely move more bytes.
    """
    before, after = cost_of(removed, effects), cost_of(created, effects)
    if after.launches < before.launches:
        return None
    if after.launches == before.launches and not _surely_positive(after.bytes - before.bytes):
        return None
    return NoMatch(
        f"it would cost more than it saves: {after.launches} launches in place of "
        f"{before.launches}, {after.bytes} bytes in place of {before.bytes}"
    )


def _launches(node: Node, effects: EffectTable) -> int:
    if node.op != "call_function" or node.target is operator.getitem or _is_constant(node):
        return 0
    name = node.target.name().partition(".")[0] if isinstance(node.target, OpOverload) else ""  # type: ignore[no-untyped-call]
    if name in _LAUNCHES:
        return _LAUNCHES[name]
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value_of(node))):
        return 0
    if effects.fresh(node):
        return 1
    effect = effects.of(node)
    return 0 if effect.aliases and not effect.writes else 1


def _is_constant(node: Node) -> bool:
    """Return whether a node is computed from what the module holds alone."""
    if node.op == "get_attr":
        return True
    used = node.all_input_nodes
    return node.op == "call_function" and bool(used) and all(map(_is_constant, used))


def _bytes(node: Node) -> Any:
    total: Any = 0
    for leaf in tree_leaves(value_of(node)):
        if isinstance(leaf, torch.Tensor):
            size: Any = leaf.element_size()
            for extent in leaf.shape:
                size = size * (extent.node.expr if isinstance(extent, torch.SymInt) else extent)
            total = total + size
    return total


def _surely_positive(difference: Any) -> bool:
    """Return whether a number is positive, or an expression whatever its sizes are."""
    if isinstance(difference, int):
        return difference > 0
    terms = difference.expand().as_ordered_terms()
    return all(term.is_positive for term in terms)
