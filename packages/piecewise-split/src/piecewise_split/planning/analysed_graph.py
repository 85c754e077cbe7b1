"""The analysis of a graph: nodes that belong to no piece, and inputs and outputs of each piece."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from piecewise_split.planning.size_reads import SizeTable, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from piecewise_split.planning.split_plan import CutReason


@dataclasses.dataclass(kw_only=True, eq=False)
class PieceNodes:
    """The nodes of one piece, and the values that cross its borders.

    Attributes:
        reason: Why the piece begins here.
        is_splitting: Whether it runs splitting ops.
        nodes: Nodes of the whole graph that the piece runs, in order.
        merged: Those of ``nodes`` that came from a later piece that launched nothing.
        inputs: Values from outside: first those that its nodes use, in order of first use, then
            the declared side inputs. Constants of the graph count as values from outside.
        side_inputs: Those of ``inputs`` that no node of the piece uses.
        outputs: Values that later pieces or the graph's output use, in order of definition.
    """

    reason: CutReason
    is_splitting: bool
    nodes: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    merged: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    inputs: tuple[Value, ...] = ()
    side_inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()


class AnalysedGraph:
    """The parts of a graph that belong to no piece, its decomposed sizes, and its pieces.

    Tensors read by ``get_attr`` are *constants*: they are passed to pieces as inputs, so that
    pieces that differ only in their weights are equal. Modules and other objects read by
    ``get_attr`` are *attachments*: every piece that uses one reads it itself.

    Attributes:
        module: Owner of the graph.
        placeholders: Parameters of the graph.
        output: The output node.
        body: Nodes that run in pieces, in order.
        constants: Maps a ``get_attr`` node to the node that represents its tensor (the first one
            that reads the same attribute).
        attachments: ``get_attr`` nodes that are copied into the pieces that use them.
        sizes: Replacements of the nodes that read whole sizes.
        is_plain: Whether no node is replaced by another.
        pieces: The pieces in the order of execution; empty until the graph is planned.
    """

    def __init__(self, graph_module: torch.fx.GraphModule) -> None:
        graph = graph_module.graph
        self.module = graph_module
        self.sizes = SizeTable(graph)
        self.placeholders: list[torch.fx.Node] = []
        self.body: list[torch.fx.Node] = []
        self.constants: dict[torch.fx.Node, torch.fx.Node] = {}
        self.attachments: set[torch.fx.Node] = set()
        self.pieces: list[PieceNodes] = []
        first_read: dict[str, torch.fx.Node] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self.placeholders.append(node)
            elif node.op == "get_attr":
                target = str(node.target)
                if isinstance(self.attribute(target), torch.Tensor):
                    self.constants[node] = first_read.setdefault(target, node)
                else:
                    self.attachments.add(node)
            elif node.op != "output" and not self.sizes.is_dissolved(node):
                self.body.append(node)
        self.output: torch.fx.Node = graph.output_node()
        self.is_plain = not (self.constants or self.attachments or self.sizes.replaced)

    def attribute(self, target: str) -> object:
        """Return the attribute of the module that a dotted ``get_attr`` target names."""
        value: object = self.module
        for part in target.split("."):
            value = getattr(value, part)
        return value

    def used_by(self, node: torch.fx.Node) -> Sequence[Value]:
        """Return the values a node uses: sizes decomposed, constants once, no attachments."""
        if self.is_plain:
            return node.all_input_nodes
        return [
            self.constants.get(value, value) if isinstance(value, torch.fx.Node) else value
            for value in self.sizes.used_by(node)
            if value not in self.attachments
        ]

    def defined_by(self, node: torch.fx.Node) -> Sequence[Value]:
        """Return the values that a body node defines: itself, or the size reads that replace it."""
        return self.sizes.reads.get(node) or (node,)

    def trace_values(self, side_inputs: Mapping[int, Sequence[Value]]) -> None:
        """Set the inputs and outputs of every piece, in time linear in the graph."""
        owner: dict[Value, int] = {
            value: index
            for index, piece in enumerate(self.pieces)
            for node in piece.nodes
            for value in self.defined_by(node)
        }
        exported = set(self.used_by(self.output))
        for index, piece in enumerate(self.pieces):
            taken: dict[Value, None] = {}
            for node in piece.nodes:
                for value in self.used_by(node):
                    if owner.get(value) != index:
                        taken[value] = None
            piece.side_inputs = tuple(v for v in side_inputs.get(index, ()) if v not in taken)
            taken.update(dict.fromkeys(piece.side_inputs))
            exported.update(taken)
            piece.inputs = tuple(taken)
        for piece in self.pieces:
            piece.outputs = tuple(
                value
                for node in piece.nodes
                for value in self.defined_by(node)
                if value in exported
            )
