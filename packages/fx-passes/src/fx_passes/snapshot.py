"""What a graph was, kept cheaply, so that a failed run can put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx.node import map_arg

from fx_passes.torch_internals import calling_convention

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


class GraphSnapshot:
    """The nodes of a module's graph at one time, by reference; about a microsecond a node."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._graph = graph_module.graph
        self._code = calling_convention(graph_module.graph)
        self._records = [
            (node, node.name, node.op, node.target, node.args, dict(node.kwargs), dict(node.meta))
            for node in graph_module.graph.nodes
        ]

    def restore(self) -> None:
        """Make the graph equal to the one of the snapshot, names included, in place.

        The module has the same graph object as before, but its nodes are new ones.
        """
        graph = self._graph
        for node in reversed(graph.nodes):
            node.args, node.kwargs = (), {}
        for node in reversed(graph.nodes):
            graph.erase_node(node)
        graph.set_codegen(self._code)
        restored: dict[Node, Node] = {}
        for old, name, op, target, _, _, meta in self._records:
            node = restored[old] = graph.create_node(op, target)
            # The namespace of the graph still knows the names as taken.
            node.name = name
            node.meta = dict(meta)
            node.type = old.type
        # Arguments come last, so that a graph in the wrong order is put back as well.
        for old, _, _, _, args, kwargs, _ in self._records:
            restored[old].args = map_arg(args, restored.__getitem__)
            restored[old].kwargs = map_arg(kwargs, restored.__getitem__)
        self._graph_module.graph = graph
