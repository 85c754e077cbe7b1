"""Plans a split from a graph and the names of its splitting ops."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from piecewise_split.errors import UnsupportedGraphError
from piecewise_split.planning.analysed_graph import AnalysedGraph, PieceNodes
from piecewise_split.planning.no_op_nodes import is_allocation, is_host_only
from piecewise_split.planning.node_origin import module_range, source_line
from piecewise_split.planning.side_inputs import resolve_side_inputs
from piecewise_split.planning.size_reads import SizeRead, Value, node_value
from piecewise_split.planning.split_plan import CutReason, PlannedPiece, SplitPlan
from piecewise_split.planning.split_points import SplitPoints, SplittingOp, find_split_points
from piecewise_split.planning.structural_key import StructureReader, number_classes
from piecewise_split.planning.supported_graph import check_regions, check_supported
from piecewise_split.torch_internals import OpOverload, returned_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def plan_split(
    graph_module: torch.fx.GraphModule,
    splitting_ops: Iterable[SplittingOp] = (),
    *,
    allow_absent: bool = False,
    side_inputs: Mapping[str, Sequence[str]] | None = None,
) -> SplitPlan:
    """Decide where to cut a graph. Nothing is built and the graph is not changed.

    The rules:

    - Each call of a splitting op is a piece of its own; consecutive calls share one piece.
    - Everything between two such pieces is a piece.
    - A ``getitem`` that unpacks a tuple stays with the node that produced the tuple.
    - A piece that launches nothing (it allocates, or computes sizes on the host) is merged into the
      piece before the cut if its inputs are available there.
    - Sizes are decomposed (see :mod:`piecewise_split.planning.size_reads`).
    - The order of nodes never changes.

    Args:
        graph_module: A Dynamo or ATen graph. Metadata (``val`` or ``example_value``) is used if
            present; without it no size may cross a cut.
        splitting_ops: Operators to cut at, see :func:`find_split_points`; without any, there is one
            piece.
        allow_absent: Accept splitting ops that the graph does not call.
        side_inputs: Maps a splitting op, or the name of a node that calls one, to names of values
            that its piece must receive although the graph does not pass them (for example a KV
            cache that the operator finds by layer name, or a step's lengths).

    Returns:
        The plan, to be printed or passed to :func:`split`. It keeps the graph, which must not
        change until it is split; see :meth:`SplitPlan.without_graph`.

    Raises:
        SplittingOpError: A name is malformed, ambiguous or absent, or a side input cannot be
            passed.
        UnsupportedGraphError: The graph contains something that cannot be split, or a size
            without metadata would cross a cut.
    """
    check_supported(graph_module)
    graph = AnalysedGraph(graph_module)
    points = find_split_points(graph_module.graph, splitting_ops, allow_absent=allow_absent)
    graph.pieces = _merge_no_op_pieces(graph, _assign(graph, points))
    graph.trace_values(resolve_side_inputs(graph, points, side_inputs or {}))
    _check_sizes(graph)
    check_regions(graph.pieces)
    reader = StructureReader(graph)
    leaders, keys = number_classes([reader.structure(piece) for piece in graph.pieces])
    live = live_values(graph)
    return SplitPlan(
        pieces=tuple(
            _planned(index, piece, live[index], leaders[index], keys[index])
            for index, piece in enumerate(graph.pieces)
        ),
        splitting_ops=points.requested,
        absent_ops=points.absent,
        parameters=tuple(node.name for node in graph.placeholders),
        dissolved=tuple(
            node.name for node in graph.sizes.replaced if graph.sizes.is_dissolved(node)
        ),
        analysed=graph,
    )


def _assign(graph: AnalysedGraph, points: SplitPoints) -> list[PieceNodes]:
    pieces: list[PieceNodes] = []
    piece_of: dict[torch.fx.Node, PieceNodes] = {}
    previous_splits = False
    after = CutReason(kind="graph start")
    for node in graph.body:
        producer = _unpacked_producer(node)
        if producer is not None and producer in piece_of:
            piece_of[node] = piece_of[producer]
            piece_of[node].nodes.append(node)
            previous_splits = False
            continue
        name = points.operators.get(node)
        if name is not None:
            if not previous_splits:
                reason = CutReason(kind="splitting op", operator=name, node=node.name)
                pieces.append(PieceNodes(reason=reason, is_splitting=True))
            after = CutReason(kind="after splitting op", operator=name, node=node.name)
        elif not pieces or pieces[-1].is_splitting:
            pieces.append(PieceNodes(reason=after, is_splitting=False))
        previous_splits = name is not None
        piece_of[node] = pieces[-1]
        pieces[-1].nodes.append(node)
    return pieces


def _unpacked_producer(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the node whose tuple a ``getitem`` unpacks, or None.

    Indexing a tensor is also ``operator.getitem`` in a Dynamo graph, and reads memory that an
    operator in between may have written, so it is not moved.
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


def _merge_no_op_pieces(graph: AnalysedGraph, pieces: list[PieceNodes]) -> list[PieceNodes]:
    """Move the nodes of pieces that launch nothing to the capturable piece before the cut."""
    available: set[Value] = {*graph.placeholders, *graph.constants.values()}
    since_target: list[torch.fx.Node] = []
    target: PieceNodes | None = None
    kept: list[PieceNodes] = []
    for piece in pieces:
        if (
            target is not None
            and not piece.is_splitting
            and all(is_allocation(node) or is_host_only(node, graph) for node in piece.nodes)
            and _inputs_within(graph, piece.nodes, available)
        ):
            target.nodes.extend(piece.nodes)
            target.merged.extend(piece.nodes)
            available.update(value for node in piece.nodes for value in graph.defined_by(node))
            continue
        kept.append(piece)
        since_target.extend(piece.nodes)
        if not piece.is_splitting:
            target = piece
            available.update(value for node in since_target for value in graph.defined_by(node))
            since_target = []
    return kept


def _inputs_within(
    graph: AnalysedGraph, nodes: Sequence[torch.fx.Node], available: set[Value]
) -> bool:
    defined: set[Value] = set()
    for node in nodes:
        for value in graph.used_by(node):
            if value not in available and value not in defined:
                return False
        defined.update(graph.defined_by(node))
    return True


def _check_sizes(graph: AnalysedGraph) -> None:
    """Reject a size without metadata that would be passed between pieces.

    Raises:
        UnsupportedGraphError: There is one.
    """
    crossing = {value for piece in graph.pieces for value in piece.inputs}
    for node in graph.sizes.opaque:
        if node in crossing:
            raise UnsupportedGraphError(
                f"Splitting a graph: {node.name!r} reads the whole size of "
                f"{node.args[0]!s} and is used in another piece, and neither node has metadata "
                f"('val' or 'example_value'), so the size cannot be taken apart. Propagate fake "
                f"tensors through the graph first, or read single dimensions."
            )


def _planned(
    index: int, piece: PieceNodes, live: Sequence[Value], leader: int, structural_key: str
) -> PlannedPiece:
    return PlannedPiece(
        index=index,
        name=f"piece_{index}",
        is_splitting=piece.is_splitting,
        nodes=tuple(node.name for node in piece.nodes),
        merged=tuple(node.name for node in piece.merged),
        inputs=tuple(value.name for value in piece.inputs),
        side_inputs=tuple(value.name for value in piece.side_inputs),
        outputs=tuple(value.name for value in piece.outputs),
        live=tuple(value.name for value in live),
        live_bytes=bytes_of(live),
        source=source_line(piece.nodes),
        modules=module_range(piece.nodes),
        cut_reason=piece.reason,
        structural_key=structural_key,
        isomorphic_to=leader,
    )


def live_values(analysed: AnalysedGraph) -> list[tuple[Value, ...]]:
    """Return for each piece the values of earlier pieces that are used from there on.

    Linear in the graph and in the live values at the cuts.
    """
    pieces = analysed.pieces
    last_use: dict[Value, int] = {}
    for index, piece in enumerate(pieces):
        last_use.update(dict.fromkeys(piece.inputs, index))
    last_use.update(dict.fromkeys(analysed.used_by(analysed.output), len(pieces)))
    live: dict[Value, None] = {}
    at_cuts: list[tuple[Value, ...]] = []
    for index, piece in enumerate(pieces):
        at_cuts.append(tuple(live))
        live.update(dict.fromkeys(piece.outputs))
        for value in (*piece.inputs, *piece.outputs):
            if last_use.get(value, index) <= index:
                live.pop(value, None)
    return at_cuts


def bytes_of(values: Sequence[Value]) -> int | None:
    """Return the total bytes of the tensors among some values, or None if metadata is missing."""
    total = 0
    for value in values:
        if isinstance(value, SizeRead):
            continue
        described = node_value(value)
        if described is None:
            return None
        for each in described if isinstance(described, (tuple, list)) else (described,):
            if isinstance(each, torch.Tensor):
                size = _example_bytes(each)
                if size is None:
                    return None
                total += size
    return total


def _example_bytes(tensor: torch.Tensor) -> int | None:
    count = tensor.element_size()
    sizes: Sequence[int | torch.SymInt] = tensor.shape
    for size in sizes:
        # Asking a symbolic size for its number would fix it; its hint is that of the example.
        known: object = size.node.hint if isinstance(size, torch.SymInt) else size
        if not isinstance(known, int):
            return None
        count *= known
    return count
