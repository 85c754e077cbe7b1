"""Declared inputs of splitting pieces that the graph does not show."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from piecewise_split.errors import SplittingOpError
from piecewise_split.operator_names import answers_to, called_operator, parse_operator_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from piecewise_split.planning.analysed_graph import AnalysedGraph
    from piecewise_split.planning.size_reads import Value
    from piecewise_split.planning.split_points import SplitPoints


def resolve_side_inputs(
    analysed: AnalysedGraph,
    points: SplitPoints,
    declared: Mapping[str, Sequence[str]],
) -> dict[int, list[Value]]:
    """Find the values and pieces of declared side inputs.

    Args:
        analysed: The graph, with the nodes of its pieces.
        points: The nodes that cut it.
        declared: Maps a splitting op, or the name of a node that calls one, to names of values:
            parameters (by node name or by target), constants or results.

    Returns:
        Maps the index of each such piece to its values, in the order of declaration.

    Raises:
        SplittingOpError: A key or a name is unknown, or the value is computed after the piece.
    """
    if not declared:
        return {}
    owner: dict[str, int] = {}
    piece_of: dict[torch.fx.Node, int] = {}
    outer = (*analysed.placeholders, *analysed.constants.values())
    values: dict[str, Value] = {str(node.target): node for node in outer}
    values.update((node.name, node) for node in outer)
    for index, piece in enumerate(analysed.pieces):
        for node in piece.nodes:
            piece_of[node] = index
            for value in analysed.defined_by(node):
                values[value.name], owner[value.name] = value, index
    found: dict[int, list[Value]] = {}
    for key, names in declared.items():
        for index in _pieces_of(key, points, piece_of):
            for name in names:
                _check_available(name, key, values, owner, index)
                found.setdefault(index, []).append(values[name])
    return found


def _check_available(
    name: str, key: str, values: Mapping[str, Value], owner: Mapping[str, int], index: int
) -> None:
    if name not in values:
        raise SplittingOpError(
            f"Declaring side input {name!r} for {key!r}: the graph has no such "
            f"value{_near(name, values)}."
        )
    if owner.get(name, -1) >= index:
        raise SplittingOpError(
            f"Declaring side input {name!r} for {key!r}: piece {owner[name]} makes it, piece "
            f"{index} would need it before or while it runs. Only values made before the piece "
            f"can be passed to it."
        )


def _pieces_of(
    key: str, points: SplitPoints, piece_of: Mapping[torch.fx.Node, int]
) -> dict[int, None]:
    nodes = [node for node in points.operators if node.name == key]
    if not nodes:
        try:
            name = parse_operator_name(key)
        except SplittingOpError:
            name = ""
        nodes = [
            node
            for node in points.operators
            if name and (op := called_operator(node)) is not None and answers_to(op, name)
        ]
    if not nodes:
        known = {*points.operators.values(), *(node.name for node in points.operators)}
        raise SplittingOpError(
            f"Declaring side inputs for {key!r}: it is neither a splitting op that the graph "
            f"calls nor the name of a node that calls one{_near(key, known)}."
        )
    return dict.fromkeys(piece_of[node] for node in nodes)


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; near names: {', '.join(near)}" if near else ""
