"""Builds the pieces of a plan."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import torch
from torch.fx.node import map_arg

from piecewise_split.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.fx.node import Argument

    from piecewise_split.planning.analysed_graph import AnalysedGraph, PieceNodes
    from piecewise_split.planning.size_reads import SizeRead, Value
    from piecewise_split.planning.split_plan import PlannedPiece, SplitPlan


class _PieceBuilder:
    """Copies the nodes of a piece into a graph of their own."""

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
        """Return the graph, and the names of the modules and objects that it reads from its owner.

        Its placeholders are the piece's inputs and its output is the tuple of its outputs.
        """
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
            with self._graph.inserting_before(copied):
                size = self._graph.call_function(torch.Size, (copied.args[0],))
            copied.args = (size, *copied.args[1:])
        self._copies[node] = copied

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


class Piece:
    """One piece of a split graph; pieces with equal structure share one graph.

    Attributes:
        planned: Its entry in the plan: nodes, cut reason, side inputs. What is used most of it is
            here too: `index`, `name`, `label`, `is_splitting` and `structural_key`.
        input_names: Names of its inputs in the whole graph, in order.
        output_names: Names of its outputs in the whole graph, in order.
        graph: The piece's graph: its inputs in order, and a tuple of its outputs in order. Node
            names and metadata are those of the first piece with this structure. Copy it before you
            change it.
    """

    def __init__(
        self,
        planned: PlannedPiece,
        graph: torch.fx.Graph,
        attachments: Mapping[str, object],
        first: Piece | None,
    ) -> None:
        self.planned = planned
        self.index = planned.index
        self.name = planned.name
        self.label = planned.label
        self.is_splitting = planned.is_splitting
        self.input_names = planned.inputs
        self.output_names = planned.outputs
        self.structural_key = planned.structural_key
        self.graph = graph
        self._attachments = attachments
        self._first = first

    @functools.cached_property
    def graph_module(self) -> torch.fx.GraphModule:
        """The graph as a module, also shared; code is generated at the first access."""
        if self._first is not None:
            return self._first.graph_module
        return torch.fx.GraphModule(dict(self._attachments), self.graph, f"Piece{self.index}")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SplitGraph:
    """A graph split into pieces.

    Attributes:
        plan: The plan.
        pieces: The pieces in the order of execution.
        analysed: The analysis of the whole graph.
    """

    plan: SplitPlan
    pieces: tuple[Piece, ...]
    analysed: AnalysedGraph


def split(plan: SplitPlan) -> SplitGraph:
    """Build the pieces of a plan, one graph for each distinct structure.

    Time is linear in the nodes of the distinct structures. The planned graph is not changed. Python
    code is generated only when you read ``graph_module``.

    Args:
        plan: A plan from :func:`plan_split`, whose graph has not been changed since.

    Raises:
        PlanError: The plan was read from JSON or has no graph.
    """
    analysed = plan.analysed
    if analysed is None:
        raise PlanError(
            f"Splitting a graph by a plan of {len(plan.pieces)} pieces: the plan is without its "
            f"graph, as one that was read from JSON. Make the plan with plan_split."
        )
    pieces: list[Piece] = []
    for planned, nodes in zip(plan.pieces, analysed.pieces, strict=True):
        if planned.isomorphic_to < planned.index:
            first = pieces[planned.isomorphic_to]
            pieces.append(Piece(planned, first.graph, {}, first))
        else:
            graph, targets = _PieceBuilder(analysed).build(nodes)
            attachments = {target: analysed.attribute(target) for target in targets}
            pieces.append(Piece(planned, graph, attachments, None))
    return SplitGraph(plan=plan, pieces=tuple(pieces), analysed=analysed)
