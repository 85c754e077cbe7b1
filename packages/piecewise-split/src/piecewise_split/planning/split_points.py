"""Finds the nodes that cut a graph."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from piecewise_split.errors import SplittingOpError
from piecewise_split.operator_names import (
    answers_to,
    called_operator,
    parse_operator_name,
)
from piecewise_split.planning.absent_operators import explain_absence
from piecewise_split.torch_internals import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

SplittingOp: TypeAlias = str | OpOverload | OpOverloadPacket
"""A splitting op as a caller names it: text in any accepted spelling, or the operator itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitPoints:
    """The nodes that cut a graph.

    Attributes:
        operators: Maps a cutting node to the canonical name (``ns::op`` or ``ns::op.overload``)
            that it matched, in graph order.
        requested: Every requested name, canonical, without repetition, in the caller's order.
        absent: The requested names that no node matches.
    """

    operators: Mapping[torch.fx.Node, str]
    requested: tuple[str, ...]
    absent: tuple[str, ...]


def find_split_points(
    graph: torch.fx.Graph,
    splitting_ops: Iterable[SplittingOp],
    *,
    allow_absent: bool = False,
) -> SplitPoints:
    """Find the nodes of a graph that call a splitting op.

    Args:
        graph: A Dynamo graph (operator packets) or an ATen graph (operator overloads).
        splitting_ops: Operators to cut at. ``ns::op`` means all its overloads.
        allow_absent: Accept names that do not occur, for an engine's default list for all models.
            Without it, a misspelt name is an error rather than a graph that is not split.

    Returns:
        The cutting nodes in graph order.

    Raises:
        SplittingOpError: A name is malformed, names an ambiguous overload, or does not occur
            and ``allow_absent`` is false.
    """
    requested = tuple(dict.fromkeys(parse_operator_name(op) for op in splitting_ops))
    matched: dict[object, str | None] = {}
    operators: dict[torch.fx.Node, str] = {}
    for node in graph.nodes:
        operator = called_operator(node)
        if operator is not None and operator not in matched:
            matched[operator] = next(
                (name for name in requested if answers_to(operator, name)), None
            )
        name = matched[operator] if operator is not None else None
        if name is not None:
            operators[node] = name
    present = {op for op in matched if isinstance(op, (OpOverload, OpOverloadPacket))}
    absent = tuple(name for name in requested if not any(answers_to(op, name) for op in present))
    if absent and not allow_absent:
        raise SplittingOpError(explain_absence(graph, absent), absent=absent)
    return SplitPoints(operators=operators, requested=requested, absent=absent)
