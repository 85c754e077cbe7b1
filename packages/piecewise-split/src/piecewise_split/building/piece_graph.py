"""The graph of one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx.node import Argument

    from piecewise_split.planning.analysed_graph import AnalysedGraph, PieceNodes
    from piecewise_split.planning.size_reads import SizeRead, Value


def build_graph(analysed: AnalysedGraph, piece: PieceNodes) -> tuple[torch.fx.Graph, list[str]]:
    """Copy the nodes of a piece into a graph of their own.

    Returns:
        The graph, whose placeholders are the piece's inputs and whose output is the tuple of its
        outputs, and the names of the modules and objects that it reads from its owner.
    """
    return _PieceBuilder(analysed).build(piece)


class _PieceBuilder:
    def __init__(self, analysed: AnalysedGraph) -> None:
        self._analysed = analysed
        self._graph = torch.fx.Graph()
        self._copies: dict[Value, torch.fx.Node] = {}
        self._targets: dict[str, None] = {}
        # The look-up alone where no node is replaced: it runs for every argument.
        self._replace: Callable[[torch.fx.Node], Argument] = (
            self._copies.__getitem__ if analysed.is_plain else self._stand_in
        )

    def build(self, piece: PieceNodes) -> tuple[torch.fx.Graph, list[str]]:
        for value in piece.inputs:
            annotation = value.type if isinstance(value, torch.fx.Node) else None
            copied = self._graph.create_node(
                "placeholder", value.name, (), {}, value.name, annotation
            )
            copied.meta.update(value.meta)
            self._copies[value] = copied
        reads = self._analysed.sizes.reads
        for node in piece.nodes:
            if node in reads:
                for read in reads[node]:
                    self._read_size(read)
            else:
                self._copy(node)
        self._graph.output(tuple(self._copies[value] for value in piece.outputs))
        return self._graph, list(self._targets)

    def _copy(self, node: torch.fx.Node) -> None:
        if node.op == "call_module":
            self._targets[str(node.target)] = None
        # Not Graph.node_copy: it assigns `meta`, for which torch reindexes the node each time.
        copied = self._graph.create_node(
            node.op,
            node.target,
            map_arg(node.args, self._replace),
            map_arg(node.kwargs, self._replace),
            node.name,
            node.type,
        )
        copied.meta.update(node.meta)
        if node in self._analysed.sizes.size_objects:
            self._give_size_object(copied)
        self._copies[node] = copied

    def _give_size_object(self, copied: torch.fx.Node) -> None:
        with self._graph.inserting_before(copied):
            size = self._graph.call_function(torch.Size, (copied.args[0],))
        copied.args = (size, *copied.args[1:])

    def _stand_in(self, node: torch.fx.Node) -> Argument:
        found = self._copies.get(node)
        if found is not None:
            return found
        dims = self._analysed.sizes.replaced.get(node)
        if isinstance(dims, tuple):
            return tuple(self._stand_in_value(dim) for dim in dims)
        if dims is not None:
            return self._stand_in_value(dims)
        if node in self._analysed.attachments:
            self._targets[str(node.target)] = None
            copied = self._copies[node] = self._graph.node_copy(node)
            return copied
        return self._copies[self._analysed.constants[node]]

    def _stand_in_value(self, dim: int | Value) -> Argument:
        return dim if isinstance(dim, int) else self._copies[dim]

    def _read_size(self, read: SizeRead) -> None:
        tensor = self._copies[self._analysed.constants.get(read.tensor, read.tensor)]
        copied = self._graph.create_node(
            "call_function", torch.ops.aten.sym_size.int, (tensor, read.dim), {}, read.name
        )
        copied.meta.update(read.meta)
        self._copies[read] = copied
