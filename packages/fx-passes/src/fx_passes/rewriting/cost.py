"""What a rewrite costs beside what it saves: operators launched, and bytes read and written."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fx_passes.graph_argument import value_of
from fx_passes.matching.match import NoMatch
from fx_passes.torch_internals import OpOverload, is_static_input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch.fx import Node

    from fx_passes.memory import EffectTable


# Operators of which it cannot be seen whether they launch: all others do, but for views, taken
# elements and what is computed from numbers alone.
_LAUNCHES = MappingProxyType(
    {
        "_c10d_functional::wait_tensor": False,
        "aten::contiguous": True,
        "vllm::maybe_all_gather_and_maybe_unpad": True,
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


def cost_of(
    nodes: Iterable[Node], effects: EffectTable, *, weights_are_prepared: bool = False
) -> Cost:
    """Return what some nodes cost, judged by their operators and fake values.

    Args:
        nodes: The nodes, in an order in which they can run.
        effects: What operators read and write.
        weights_are_prepared: Whether a pass such as `FoldConstantsPass` computes once what depends
            only on inputs that are weights, so that it costs nothing. What depends only on tensors
            of the graph's module never does.
    """
    launching = list(_launching(nodes, effects, weights_are_prepared))
    moved = sum(_bytes(used) for node in launching for used in (node, *node.all_input_nodes))
    return Cost(launches=len(launching), bytes=moved)


def cost_problem(
    removed: Sequence[Node],
    created: Sequence[Node],
    effects: EffectTable,
    *,
    weights_are_prepared: bool = False,
) -> NoMatch | None:
    """Return why new nodes are worse than those they replace, with the figures, or None.

    They are if they launch more, or launch as many and surely move more bytes.
    """
    # Usually the first nodes of a match show that it launches more than the new nodes ever could.
    most = sum(node.target is not operator.getitem for node in created)
    launching = _launching(removed, effects, weights_are_prepared)
    if next(islice(launching, most, None), None) is not None:
        return None
    before = cost_of(removed, effects, weights_are_prepared=weights_are_prepared)
    after = cost_of(created, effects, weights_are_prepared=weights_are_prepared)
    if after.launches < before.launches:
        return None
    if after.launches == before.launches and not _surely_positive(after.bytes - before.bytes):
        return None
    return NoMatch(
        f"it would cost more than it saves: {after.launches} launches in place of "
        f"{before.launches}, {after.bytes} bytes in place of {before.bytes}"
    )


def _launching(
    nodes: Iterable[Node], effects: EffectTable, weights_are_prepared: bool
) -> Iterator[Node]:
    constants: set[Node] = set()
    for node in nodes:
        used = node.all_input_nodes
        for each in used:
            if each in constants or each.op == "get_attr":
                continue
            if not (weights_are_prepared and is_prepared_weight(each)):
                break
        else:
            if used:
                constants.add(node)
                continue
        if _launches(node, effects):
            yield node


def _launches(node: Node, effects: EffectTable) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    # The usual cases first: each match asks this of each of its nodes.
    if effects.fresh(node):
        value = value_of(node)
        return isinstance(value, torch.Tensor) or next(_tensors(value), None) is not None
    if effects.only_shows(node):
        return False
    name = node.target.name().partition(".")[0] if isinstance(node.target, OpOverload) else ""  # type: ignore[no-untyped-call]
    if name in _LAUNCHES:
        return _LAUNCHES[name]
    if next(_tensors(value_of(node)), None) is None:
        return False
    effect = effects.of(node)
    return bool(effect.writes) or not effect.aliases


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the fake tensors of an operator's result: one, or a list of them and other things."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _bytes(node: Node) -> Any:
    total: Any = 0
    for leaf in _tensors(value_of(node)):
        size: Any = leaf.element_size()
        extents: tuple[object, ...] = tuple(leaf.shape)
        for extent in extents:
            size = size * (extent.node.expr if isinstance(extent, torch.SymInt) else extent)
        total = total + size
    return total


def _surely_positive(difference: Any) -> bool:
    """Return whether a number is positive, or an expression whatever its sizes are."""
    if isinstance(difference, int):
        return difference > 0
    terms = difference.expand().as_ordered_terms()
    return all(term.is_positive for term in terms)


def is_prepared_weight(node: Node) -> bool:
    """Return whether `FoldConstantsPass` prepares what is computed from an input of a graph.

    So it is for vectors: copies of larger weights would take memory.
    """
    if node.op != "placeholder" or not is_static_input(node):
        return False
    value = value_of(node)
    return isinstance(value, torch.Tensor) and value.dim() <= 1
