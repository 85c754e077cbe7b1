"""What each piece of a graph takes in and hands on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from piecewise_split.errors import PlanMismatchError
from piecewise_split.planning.size_reads import SizeTable, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PieceFlow:
    """One piece before anything is built.

    Attributes:
        nodes: Nodes of the whole graph that the piece runs, in the order they run.
        inputs: Values from outside: first those that its nodes use, in order of first use, then
            the declared side inputs. Constants of the graph count as values from outside.
        side_inputs: Those of ``inputs`` that no node of the piece uses.
        outputs: Values that later pieces or the graph's output use, in order of definition.
    """

    nodes: tuple[torch.fx.Node, ...]
    inputs: tuple[Value, ...]
    side_inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


class GraphScope:
    """The parts of a graph that belong to no piece, and the sizes taken apart.

    Tensors read by ``get_attr`` are *constants*: they are handed to pieces as inputs, so that
    pieces that differ only in their weights are equal. Modules and other objects read by
    ``get_attr`` are *attachments*: every piece that uses one reads it itself.

    Attributes:
        placeholders: Parameters of the graph.
        output: The output node.
        body: Nodes that run in pieces, in order.
        constants: ``get_attr`` node to the node that stands for its tensor (the first one that
            reads the same attribute).
        attachments: ``get_attr`` nodes that are copied into the pieces that use them.
        sizes: Stand-ins for the nodes that read whole sizes.
        is_plain: Whether every node stands for itself.
    """

    def __init__(self, graph_module: torch.fx.GraphModule) -> None:
        graph = graph_module.graph
        self.sizes = SizeTable(graph)
        self.placeholders: list[torch.fx.Node] = []
        self.body: list[torch.fx.Node] = []
        self.constants: dict[torch.fx.Node, torch.fx.Node] = {}
        self.attachments: set[torch.fx.Node] = set()
        first_read: dict[str, torch.fx.Node] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self.placeholders.append(node)
            elif node.op == "get_attr":
                target = str(node.target)
                if isinstance(attribute(graph_module, target), torch.Tensor):
                    self.constants[node] = first_read.setdefault(target, node)
                else:
                    self.attachments.add(node)
            elif node.op != "output" and not self.sizes.is_dissolved(node):
                self.body.append(node)
        self.output: torch.fx.Node = graph.output_node()
        self.is_plain = not (self.constants or self.attachments or self.sizes.replaced)

    def used_by(self, node: torch.fx.Node) -> Sequence[Value]:
        """Return the values a node uses: sizes apart, constants once, no attachments."""
        if self.is_plain:
            return node.all_input_nodes
        return [
            self.constants.get(value, value) if isinstance(value, torch.fx.Node) else value
            for value in self.sizes.used_by(node)
            if value not in self.attachments
        ]

    def defined_by(self, node: torch.fx.Node) -> Sequence[Value]:
        """Return the values that a body node defines: itself, or the size reads in its place."""
        return self.sizes.reads.get(node) or (node,)


def attribute(module: torch.nn.Module, target: str) -> object:
    """Return the attribute that a dotted ``get_attr`` target names."""
    value: object = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def trace_flow(
    scope: GraphScope,
    pieces: Sequence[Sequence[torch.fx.Node]],
    side_inputs: Mapping[int, Sequence[Value]],
) -> list[PieceFlow]:
    """Work out the inputs and outputs of every piece, in time linear in the graph.

    Args:
        scope: The graph.
        pieces: Nodes of each piece, in order.
        side_inputs: Index of a piece to the values it must receive besides those it uses.

    Raises:
        PlanMismatchError: A piece uses a value that only a later piece defines.
    """
    owner: dict[Value, int] = {
        value: index
        for index, nodes in enumerate(pieces)
        for node in nodes
        for value in scope.defined_by(node)
    }
    exported = set(scope.used_by(scope.output))
    inputs: list[tuple[Value, ...]] = []
    sides: list[tuple[Value, ...]] = []
    for index, nodes in enumerate(pieces):
        taken: dict[Value, None] = {}
        for node in nodes:
            for value in scope.used_by(node):
                if owner.get(value) != index:
                    taken[value] = None
        sides.append(tuple(v for v in side_inputs.get(index, ()) if v not in taken))
        taken.update(dict.fromkeys(sides[-1]))
        for value in taken:
            if owner.get(value, -1) >= index:
                msg = (
                    f"Splitting a graph: piece {index} needs {value.name!r}, which piece "
                    f"{owner[value]} defines. The plan does not keep the order of the graph; make "
                    f"it again with plan_split."
                )
                raise PlanMismatchError(msg)
        exported.update(taken)
        inputs.append(tuple(taken))
    return [
        PieceFlow(
            nodes=tuple(nodes),
            inputs=inputs[index],
            side_inputs=sides[index],
            outputs=tuple(
                value for node in nodes for value in scope.defined_by(node) if value in exported
            ),
        )
        for index, nodes in enumerate(pieces)
    ]
