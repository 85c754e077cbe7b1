"""Builds the pieces of a plan."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import torch

from piecewise_split.building.piece_graph import build_graph
from piecewise_split.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from piecewise_split.planning.analysed_graph import AnalysedGraph
    from piecewise_split.planning.split_plan import PlannedPiece, SplitPlan


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
            graph, targets = build_graph(analysed, nodes)
            attachments = {target: analysed.attribute(target) for target in targets}
            pieces.append(Piece(planned, graph, attachments, None))
    return SplitGraph(plan=plan, pieces=tuple(pieces), analysed=analysed)
