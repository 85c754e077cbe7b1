"""Index of a graph's nodes by their targets, to avoid walking the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.torch_internals import table_of_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch.fx import Graph, Node


def nodes_by_target(graph: Graph) -> Mapping[tuple[str, object], Collection[Node]]:
    """Return the nodes of a graph by kind and, for functions, by target; in no certain order.

    By the graph's own table of them; a torch without it costs a walk over the graph.
    """
    table = table_of_nodes(graph)
    if table is not None:
        return table
    found: dict[tuple[str, object], list[Node]] = {}
    for node in graph.nodes:
        key = (node.op, node.target if node.op == "call_function" else None)
        found.setdefault(key, []).append(node)
    return found
