"""Passes values computed from weights to a graph as inputs, so that they are not captured."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, GraphModule

from fx_passes.generic_passes import PreparedValues, prepared_values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node


def give_prepared_values(
    graph_module: GraphModule,
) -> tuple[GraphModule, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Turn the values that a graph prepares from its weights into additional inputs.

    No piece of the graph then computes them, and a captured piece finds them at a fixed address.

    Args:
        graph_module: A Dynamo graph after the fusions. Dynamo still reads its inputs, so it
            is not changed.

    Returns:
        A module whose graph has the additional inputs (the given module if there are none), and a
        function that turns a callable with all inputs into one with the graph's own inputs.
    """
    if not prepared_values_of(graph_module):
        return graph_module, lambda call: call
    graph = Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    inputs = list(graph.find_nodes(op="placeholder"))
    places = {node: place for place, node in enumerate(inputs)}
    prepared: list[tuple[PreparedValues, tuple[int, ...]]] = []
    for node in graph.find_nodes(op="call_module"):
        module = graph_module.get_submodule(str(node.target))
        if isinstance(module, PreparedValues) and places.keys() >= set(node.args):
            prepared.append((module, tuple(places[each] for each in node.args)))
            _replace_by_inputs(node)

    def giving(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            values = [
                value
                for module, weights in prepared
                for value in module(*[args[each] for each in weights])
            ]
            return call(*args, *values)

        return run

    return GraphModule(graph_module, graph), giving


def _replace_by_inputs(call: Node) -> None:
    graph = call.graph
    last = list(graph.find_nodes(op="placeholder"))[-1]
    taken = {user.args[1]: user for user in call.users if user.target is operator.getitem}
    for position, value in enumerate(call.meta["val"]):
        with graph.inserting_after(last):
            last = graph.placeholder(f"{call.name}_{position}")
        last.meta["val"] = last.meta["example_value"] = value
        if position in taken:
            taken[position].replace_all_uses_with(last)
            graph.erase_node(taken[position])
    graph.erase_node(call)
