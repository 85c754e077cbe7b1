"""From a graph and its plan to pieces."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, cast

import torch

from piecewise_split.building.piece_graph import build_graph
from piecewise_split.building.piece_sizes import GraphSizes
from piecewise_split.errors import PlanMismatchError
from piecewise_split.planning.piece_flow import GraphScope, PieceFlow, attribute, trace_flow
from piecewise_split.planning.planner import check_sizes
from piecewise_split.planning.structural_key import StructureReader, number_classes
from piecewise_split.planning.supported_graph import check_regions, check_supported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from piecewise_split.planning.size_reads import Value
    from piecewise_split.planning.split_plan import PlannedPiece, SplitPlan


class PieceCode:
    """The computation of a piece, shared by all pieces of the same structure.

    Attributes:
        graph: Takes the inputs in order, returns a tuple of the outputs in order. Node names and
            metadata are those of the first piece with this structure.
    """

    def __init__(self, graph: torch.fx.Graph, attachments: Mapping[str, object], name: str) -> None:
        self.graph = graph
        self._attachments = attachments
        self._name = name

    @functools.cached_property
    def graph_module(self) -> torch.fx.GraphModule:
        """The graph as a module; Python code is generated at the first access."""
        return torch.fx.GraphModule(dict(self._attachments), self.graph, self._name)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """One piece of a split graph.

    Attributes:
        planned: Its entry in the plan: nodes, cut reason, side inputs.
        code: Its computation, shared with the pieces of the same structure. Read it; copy it
            before changing it.
        sizes: The dynamic sizes that inputs of the pieces of the whole graph have.
    """

    planned: PlannedPiece
    code: PieceCode
    sizes: GraphSizes = dataclasses.field(repr=False)

    @property
    def index(self) -> int:
        """Place in the order of execution, from 0."""
        return self.planned.index

    @property
    def name(self) -> str:
        """``piece_<index>``."""
        return self.planned.name

    @property
    def label(self) -> str:
        """How messages call it: its name, and the modules that it computes."""
        return self.planned.label

    @property
    def is_splitting(self) -> bool:
        """Whether it runs splitting ops, which an engine keeps out of captures."""
        return self.planned.is_splitting

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names in the whole graph of the values it takes, in order."""
        return self.planned.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names in the whole graph of the values it returns, in order."""
        return self.planned.outputs

    @property
    def structural_key(self) -> str:
        """Equal for pieces with equal code; compile once for each key."""
        return self.planned.structural_key

    @property
    def graph(self) -> torch.fx.Graph:
        """Its graph, shared; see :class:`PieceCode`."""
        return self.code.graph

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        """Its module, shared; see :class:`PieceCode`."""
        return self.code.graph_module


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SplitGraph:
    """A graph in pieces.

    Attributes:
        plan: The plan it was made by.
        pieces: In the order of execution.
        parameters: Placeholders of the whole graph.
        constants: Tensors that the whole graph read from its module, by the name that the
            pieces' inputs use. The tensors are the module's own, not copies: writing into one is
            seen, assigning another tensor to the module's attribute afterwards is not.
        output: The output node of the whole graph.
        scope: What the graph's nodes stand for once sizes are taken apart.
    """

    plan: SplitPlan
    pieces: tuple[Piece, ...]
    parameters: tuple[torch.fx.Node, ...]
    constants: Mapping[str, torch.Tensor]
    output: torch.fx.Node
    scope: GraphScope


def split(graph_module: torch.fx.GraphModule, plan: SplitPlan) -> SplitGraph:
    """Build the pieces of a plan, one graph for each different structure.

    Time is linear in the graph. The given graph is read and stays as it is; no Python code is
    generated until someone asks for a ``graph_module``.

    Args:
        graph_module: The graph that the plan was made from, or one that is equal to it.
        plan: From :func:`plan_split`, or read from JSON.

    Returns:
        The pieces.

    Raises:
        PlanMismatchError: The plan was made for another graph.
        SizeMetadataError: A size would cross a cut and has no metadata.
        UnsupportedGraphError: The graph holds something that cannot be split.
    """
    check_supported(graph_module)
    scope = GraphScope(graph_module)
    flows = _flows(scope, plan)
    check_sizes(scope, flows)
    check_regions([flow.nodes for flow in flows])
    reader = StructureReader(scope)
    leaders, keys = number_classes([reader.structure(flow) for flow in flows])
    codes: dict[int, PieceCode] = {}
    pieces: list[Piece] = []
    sizes = GraphSizes(pieces)
    for planned, flow, leader, key in zip(plan.pieces, flows, leaders, keys, strict=True):
        _check_piece(planned, flow, leader, key)
        if leader == planned.index:
            codes[leader] = _code(graph_module, scope, flow, planned)
        pieces.append(Piece(planned=planned, code=codes[leader], sizes=sizes))
    return SplitGraph(
        plan=plan,
        pieces=tuple(pieces),
        parameters=tuple(scope.placeholders),
        constants={
            node.name: cast("torch.Tensor", attribute(graph_module, str(node.target)))
            for node in dict.fromkeys(scope.constants.values())
        },
        output=scope.output,
        scope=scope,
    )


def _flows(scope: GraphScope, plan: SplitPlan) -> list[PieceFlow]:
    nodes = {node.name: node for node in scope.body}
    values: dict[str, Value] = {node.name: node for node in scope.placeholders}
    values.update({node.name: node for node in scope.constants.values()})
    for node in scope.body:
        values.update({value.name: value for value in scope.defined_by(node)})
    planned = [name for piece in plan.pieces for name in piece.nodes]
    unknown = [name for name in planned if name not in nodes]
    missing = sorted(nodes.keys() - set(planned))
    parameters = tuple(node.name for node in scope.placeholders)
    if unknown or missing or len(planned) != len(nodes) or parameters != plan.parameters:
        msg = (
            f"Splitting a graph of {len(nodes)} nodes by a plan of {len(planned)}: not in the "
            f"graph: {', '.join(unknown[:5]) or 'none'}; not in the plan: "
            f"{', '.join(missing[:5]) or 'none'}; parameters {', '.join(parameters[:5])} against "
            f"{', '.join(plan.parameters[:5])}. Make the plan from this graph with plan_split."
        )
        raise PlanMismatchError(msg)
    side_inputs = {}
    for piece in plan.pieces:
        strangers = [name for name in piece.side_inputs if name not in values]
        if strangers:
            msg = (
                f"Splitting a graph: side input {strangers[0]!r} of {piece.name} is no value of "
                f"the graph. Make the plan from this graph with plan_split."
            )
            raise PlanMismatchError(msg)
        side_inputs[piece.index] = [values[name] for name in piece.side_inputs]
    return trace_flow(
        scope, [[nodes[name] for name in piece.nodes] for piece in plan.pieces], side_inputs
    )


def _check_piece(planned: PlannedPiece, flow: PieceFlow, leader: int, key: str) -> None:
    inputs = tuple(value.name for value in flow.inputs)
    outputs = tuple(value.name for value in flow.outputs)
    pairs = (
        ("inputs", planned.inputs, inputs),
        ("outputs", planned.outputs, outputs),
        ("structural key", planned.structural_key, key),
        ("isomorphic_to", planned.isomorphic_to, leader),
    )
    for what, expected, found in pairs:
        if expected != found:
            msg = (
                f"Splitting a graph: {what} of {planned.name} is {expected!r} in the plan and "
                f"{found!r} in the graph. The graph or the plan was changed in between; make the "
                f"plan again with plan_split."
            )
            raise PlanMismatchError(msg)


def _code(
    graph_module: torch.fx.GraphModule,
    scope: GraphScope,
    flow: PieceFlow,
    planned: PlannedPiece,
) -> PieceCode:
    graph, targets = build_graph(scope, flow)
    attachments = {target: attribute(graph_module, target) for target in targets}
    return PieceCode(graph, attachments, f"Piece{planned.index}")
