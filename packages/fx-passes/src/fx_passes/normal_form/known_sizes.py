"""The sizes that Dynamo reads off a value in the middle of a graph, as the inputs they are."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch.fx.node import map_arg

from fx_passes.graph_argument import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.fx import Graph, Node


def sizes_given(graph: Graph) -> dict[str, Node]:
    """Return the inputs of a graph that are symbolic sizes, by the symbol.

    `y.view(x.shape)` keeps `x` alive and used, though the graph was given each of its sizes. With
    the sizes themselves, `x` may be a value inside of a match.
    """
    inputs: dict[str, Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = value_of(node)
        # Equal symbols are spelt alike; sums and products of them are no inputs.
        if isinstance(value, torch.SymInt):
            inputs.setdefault(str(value), node)
    return inputs


def spread_size(node: Node, inputs: Mapping[str, Node]) -> bool:
    """Give the users of `tensor.size()` numbers and inputs in its place, if all are known.

    Args:
        node: A call of the method `size` without a dimension; erased where nothing is left that
            uses it.
        inputs: See `sizes_given`.

    Returns:
        Whether anything was changed.
    """
    sizes: object = value_of(node)
    if not isinstance(sizes, torch.Size):
        return False
    extents: Sequence[object] = sizes
    known = [inputs.get(str(each)) if isinstance(each, torch.SymInt) else each for each in extents]
    if any(size is None for size in known):
        return False
    changed = False
    for user in list(node.users):
        if user.target is operator.getitem:
            changed |= _spread_element(user, known)
        elif isinstance(value_of(user), torch.Tensor):
            # An operator takes a list as well, what computes with shapes does not.
            _replace(user, node, known)
            changed = True
    if not node.users:
        node.graph.erase_node(node)
        changed = True
    return changed


def _spread_element(element: Node, known: Sequence[object]) -> bool:
    index = element.args[1]
    if not isinstance(index, int) or any(user.op == "output" for user in element.users):
        return False
    for user in list(element.users):
        _replace(user, element, known[index])
    element.graph.erase_node(element)
    return True


def _replace(user: Node, old: Node, new: object) -> None:
    def each(argument: Node) -> object:
        return new if argument is old else argument

    user.args = map_arg(user.args, each)  # type: ignore[arg-type]  # numbers too
    user.kwargs = map_arg(user.kwargs, each)  # type: ignore[arg-type]
