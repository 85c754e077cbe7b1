"""The nodes of a graph by what they call, without a walk over the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch.fx import Graph, Node

__all__ = ["nodes_by_target"]


def nodes_by_target(graph: Graph) -> Mapping[tuple[str, object], Collection[Node]]:
    """Return the nodes of a graph by kind and, for functions, by target; in no certain order.

    The one place that reads the private table behind `Graph.find_nodes`, which answers for one
    target at a time. A torch without it costs a walk over the graph.
    """
    table = getattr(getattr(graph, "_find_nodes_lookup_table", None), "table", None)
    if isinstance(table, dict):
        return table
    found: dict[tuple[str, object], list[Node]] = {}
    for node in graph.nodes:
        key = (node.op, node.target if node.op == "call_function" else None)
        found.setdefault(key, []).append(node)
    return found
