"""From a graph and the names of its splitting ops to a plan."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from piecewise_split.errors import SizeMetadataError
from piecewise_split.planning.light_nodes import is_allocation, is_host_only
from piecewise_split.planning.live_values import bytes_of, live_values
from piecewise_split.planning.node_origin import module_range, source_line
from piecewise_split.planning.piece_flow import GraphScope, PieceFlow, trace_flow
from piecewise_split.planning.side_inputs import resolve_side_inputs
from piecewise_split.planning.size_reads import Value, node_value
from piecewise_split.planning.split_plan import CutReason, PlannedPiece, SplitPlan
from piecewise_split.planning.split_points import (
    SplitPoints,
    SplitPredicate,
    SplittingOp,
    find_split_points,
)
from piecewise_split.planning.structural_key import StructureReader, number_classes
from piecewise_split.planning.supported_graph import check_regions, check_supported
from piecewise_split.torch_internals import OpOverload, returned_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class _Draft:
    """A piece while nodes are still being given to it."""

    def __init__(self, reason: CutReason, *, is_splitting: bool) -> None:
        self.reason = reason
        self.is_splitting = is_splitting
        self.nodes: list[torch.fx.Node] = []
        self.merged: list[torch.fx.Node] = []


def plan_split(
    graph_module: torch.fx.GraphModule,
    splitting_ops: Iterable[SplittingOp] = (),
    *,
    allow_absent: bool = False,
    side_inputs: Mapping[str, Sequence[str]] | None = None,
    splits_at: SplitPredicate | None = None,
    share_consecutive: bool = True,
) -> SplitPlan:
    """Decide where a graph is cut. Nothing is built and the graph is not touched.

    The rules: a call of a splitting op is a piece of its own, and calls that follow each other
    directly share one; everything between two such pieces is a piece; a ``getitem`` that unpacks
    a tuple stays with the node that made the tuple; a piece that launches nothing (it allocates,
    or computes sizes on the host) joins the piece before the cut when its inputs are there; sizes
    are taken apart (see :mod:`piecewise_split.planning.size_reads`). The graph's order is kept.

    Args:
        graph_module: A Dynamo-level or ATen-level graph. Metadata (``val`` or ``example_value``)
            is used where present; without it no size may cross a cut.
        splitting_ops: Operators to cut at, see :func:`find_split_points`; none of them leaves one
            piece.
        allow_absent: Accept splitting ops that the graph does not call.
        side_inputs: Splitting op or name of a node that calls one, to names of values that its
            piece must receive though no edge of the graph says so (a KV cache that the operator
            finds by layer name, a step's lengths).
        splits_at: Asked of every other call of the graph: the reason for which it cuts the graph
            too, or None. So a graph is cut at calls that no operator name tells apart, such as
            those a model marked by ``torch.fx.traceback.annotate``.
        share_consecutive: Whether cutting calls that follow each other directly share a piece.

    Returns:
        The plan, to be printed, or handed to :func:`split` with the same graph.

    Raises:
        SplittingOpNameError: A name is malformed or cannot be decided.
        SplittingOpAbsentError: A splitting op occurs nowhere.
        SideInputError: A side input cannot be delivered.
        SizeMetadataError: A size would cross a cut and has no metadata.
        UnsupportedGraphError: The graph holds something that cannot be split.
    """
    check_supported(graph_module)
    scope = GraphScope(graph_module)
    points = find_split_points(
        graph_module.graph, splitting_ops, allow_absent=allow_absent, splits_at=splits_at
    )
    drafts = _merge_light_pieces(scope, _assign(scope, points, share_consecutive=share_consecutive))
    declared = resolve_side_inputs(
        scope, points, [draft.nodes for draft in drafts], side_inputs or {}
    )
    flows = trace_flow(scope, [draft.nodes for draft in drafts], declared)
    check_sizes(scope, flows)
    check_regions([flow.nodes for flow in flows])
    reader = StructureReader(scope)
    leaders, keys = number_classes([reader.structure(flow) for flow in flows])
    live = live_values(scope, flows)
    return SplitPlan(
        pieces=tuple(
            _planned(index, drafts[index], flow, live[index], leaders[index], keys[index])
            for index, flow in enumerate(flows)
        ),
        splitting_ops=points.requested,
        absent_ops=points.absent,
        parameters=tuple(node.name for node in scope.placeholders),
        dissolved=tuple(
            node.name for node in scope.sizes.replaced if scope.sizes.is_dissolved(node)
        ),
    )


def _assign(scope: GraphScope, points: SplitPoints, *, share_consecutive: bool) -> list[_Draft]:
    drafts: list[_Draft] = []
    draft_of: dict[torch.fx.Node, _Draft] = {}
    previous_splits = False
    last_split: torch.fx.Node | None = None
    for node in scope.body:
        producer = _unpacked_producer(node)
        if producer is not None and producer in draft_of:
            draft_of[node] = draft_of[producer]
            draft_of[node].nodes.append(node)
            previous_splits = False
            continue
        name = points.operators.get(node)
        if name is not None:
            if not (previous_splits and share_consecutive):
                reason = CutReason(kind="splitting op", operator=name, node=node.name)
                drafts.append(_Draft(reason, is_splitting=True))
            last_split = node
        elif not drafts or drafts[-1].is_splitting:
            drafts.append(_Draft(_reason_after(last_split, points), is_splitting=False))
        previous_splits = name is not None
        draft_of[node] = drafts[-1]
        drafts[-1].nodes.append(node)
    return drafts


def _reason_after(node: torch.fx.Node | None, points: SplitPoints) -> CutReason:
    if node is None:
        return CutReason(kind="graph start")
    return CutReason(kind="after splitting op", operator=points.operators[node], node=node.name)


def _unpacked_producer(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the node whose tuple a ``getitem`` unpacks, or None.

    Indexing a tensor is also ``operator.getitem`` in a Dynamo graph, and reads memory that an
    operator in between may have written: it stays where it is.
    """
    if node.target is not operator.getitem or node.op != "call_function":
        return None
    producer, index = node.args
    if not isinstance(producer, torch.fx.Node) or isinstance(index, torch.fx.Node):
        return None
    value = node_value(producer)
    if value is None:
        return producer if _returns_tuple(producer) else None
    return producer if isinstance(value, (tuple, list)) else None


def _returns_tuple(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    types = returned_types(node.target)
    return len(types) > 1 or (len(types) == 1 and isinstance(types[0], torch.ListType))


def _merge_light_pieces(scope: GraphScope, drafts: list[_Draft]) -> list[_Draft]:
    """Move the nodes of pieces that launch nothing to the capturable piece before the cut."""
    available: set[Value] = {*scope.placeholders, *scope.constants.values()}
    since_target: list[torch.fx.Node] = []
    target: _Draft | None = None
    kept: list[_Draft] = []
    for draft in drafts:
        if (
            target is not None
            and not draft.is_splitting
            and all(is_allocation(node) or is_host_only(node, scope) for node in draft.nodes)
            and _inputs_within(scope, draft.nodes, available)
        ):
            target.nodes.extend(draft.nodes)
            target.merged.extend(draft.nodes)
            available.update(value for node in draft.nodes for value in scope.defined_by(node))
            continue
        kept.append(draft)
        since_target.extend(draft.nodes)
        if not draft.is_splitting:
            target = draft
            available.update(value for node in since_target for value in scope.defined_by(node))
            since_target = []
    return kept


def _inputs_within(
    scope: GraphScope, nodes: Sequence[torch.fx.Node], available: set[Value]
) -> bool:
    defined: set[Value] = set()
    for node in nodes:
        for value in scope.used_by(node):
            if value not in available and value not in defined:
                return False
        defined.update(scope.defined_by(node))
    return True


def check_sizes(scope: GraphScope, flows: Sequence[PieceFlow]) -> None:
    """Refuse a size without metadata that would be handed from piece to piece.

    Raises:
        SizeMetadataError: There is one.
    """
    crossing = {value for flow in flows for value in flow.inputs}
    for node in scope.sizes.opaque:
        if node in crossing:
            msg = (
                f"Splitting a graph: {node.name!r} reads the whole size of "
                f"{node.args[0]!s} and is used in another piece, and neither node has metadata "
                f"('val' or 'example_value'), so the size cannot be taken apart. Propagate fake "
                f"tensors through the graph first, or read single dimensions."
            )
            raise SizeMetadataError(msg)


def _planned(
    index: int,
    draft: _Draft,
    flow: PieceFlow,
    live: Sequence[Value],
    leader: int,
    structural_key: str,
) -> PlannedPiece:
    return PlannedPiece(
        index=index,
        name=f"piece_{index}",
        is_splitting=draft.is_splitting,
        nodes=tuple(node.name for node in flow.nodes),
        merged=tuple(node.name for node in draft.merged),
        inputs=tuple(value.name for value in flow.inputs),
        side_inputs=tuple(value.name for value in flow.side_inputs),
        outputs=tuple(value.name for value in flow.outputs),
        live=tuple(value.name for value in live),
        live_bytes=bytes_of(live),
        source=source_line(flow.nodes),
        modules=module_range(flow.nodes),
        cut_reason=draft.reason,
        structural_key=structural_key,
        isomorphic_to=leader,
    )
