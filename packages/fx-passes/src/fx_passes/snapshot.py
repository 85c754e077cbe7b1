"""What a graph was, kept cheaply, so that a failed run can put it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.fx import Graph, Node
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from torch.fx import GraphModule
    from torch.fx.node import Argument

__all__ = ["GraphSnapshot"]


@dataclass(frozen=True)
class _Record:
    node: Node
    name: str
    op: str
    target: object
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    meta: dict[str, object]


class GraphSnapshot:
    """The nodes of a module's graph at one time, by reference; about a microsecond a node."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._code = graph_module.graph._codegen  # noqa: SLF001 - Dynamo's way to pass arguments
        self._records = [
            _Record(
                node, node.name, node.op, node.target, node.args, dict(node.kwargs), dict(node.meta)
            )
            for node in graph_module.graph.nodes
        ]

    def restore(self) -> None:
        """Give the module a new graph equal to the one of the snapshot, names included.

        The graph object itself is another one; nodes held from before do not belong to it.
        """
        graph = Graph(owning_module=self._graph_module)
        graph.set_codegen(self._code)
        restored: dict[Node, Node] = {}
        for record in self._records:
            node = graph.create_node(
                record.op,
                record.target,  # type: ignore[arg-type]
                map_arg(record.args, restored.__getitem__),
                map_arg(record.kwargs, restored.__getitem__),
                name=record.name,
            )
            node.meta = dict(record.meta)
            node.type = record.node.type
            restored[record.node] = node
        self._graph_module.graph = graph
