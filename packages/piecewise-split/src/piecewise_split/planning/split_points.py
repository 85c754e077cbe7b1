"""Finds the nodes that cut a graph, and explains why a splitting op does not occur in one."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, TypeAlias

import torch

from piecewise_split.errors import SplittingOpError
from piecewise_split.operator_names import (
    answers_to,
    called_operator,
    packet_name,
    parse_operator_name,
)
from piecewise_split.planning.node_origin import source_line
from piecewise_split.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    consists_of_others,
    qualified_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


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
        raise SplittingOpError(_explain_absence(graph, absent), absent=absent)
    return SplitPoints(operators=operators, requested=requested, absent=absent)


def _explain_absence(graph: torch.fx.Graph, absent: tuple[str, ...]) -> str:
    """Return the message for splitting ops that no node of a graph calls."""
    called = {operator for node in graph.nodes if (operator := called_operator(node)) is not None}
    reasons = "; ".join(f"{name!r} {_reason(graph, name, called)}" for name in absent)
    return (
        f"Splitting a graph that calls {len(called)} registered operator(s): {len(absent)} "
        f"splitting op(s) cut it nowhere: {reasons}. For a list that serves several models pass "
        f"allow_absent=True."
    )


def _reason(graph: torch.fx.Graph, name: str, called: set[OpOverload | OpOverloadPacket]) -> str:
    for caller, node in _nested_nodes(graph):
        operator = called_operator(node)
        if operator is not None and answers_to(operator, name):
            return (
                f"is called by node {node.name!r}{_line(node)} inside a branch or body of node "
                f"{caller.name!r} ({_function_name(caller)}), which runs as one operator, so the "
                f"graph cannot be cut there; move the call out of it"
            )
    spelt = next((node for node in graph.nodes if _is_spelt_otherwise(node, name)), None)
    if spelt is not None:
        what = "method" if spelt.op == "call_method" else "Python function"
        return (
            f"is no node of it, since Dynamo keeps the {what} {_function_name(spelt)} that the "
            f"model calls (node {spelt.name!r}{_line(spelt)}); make the call a custom operator "
            f"(torch.library.custom_op) and name that, or split the graph at ATen level"
        )
    known = sorted({packet_name(op) for op in called} | {parse_operator_name(op) for op in called})
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; near names in the graph: {', '.join(near)}" if near else ""
    if consists_of_others(name) and any(isinstance(each, OpOverload) for each in called):
        return (
            f"occurs nowhere in it, since a graph at ATen level has none of this composite "
            f"operator: it has those that the operator consists of; name one of these{hint}"
        )
    functions = dict.fromkeys(_function_name(node) for node in graph.nodes if _is_python(node))
    if name.startswith("aten::") and functions:
        return (
            f"occurs nowhere in it, since most aten operators are Python functions in a graph of "
            f"Dynamo; this one calls {', '.join([*functions][:8])}; split the graph at ATen "
            f"level{hint}"
        )
    return f"occurs nowhere in it; correct the name{hint}"


def _is_python(node: torch.fx.Node) -> bool:
    """Return whether a node calls a Python function or method."""
    return node.op in {"call_function", "call_method"} and not isinstance(
        node.target, (OpOverload, OpOverloadPacket, HigherOrderOperator)
    )


def _is_spelt_otherwise(node: torch.fx.Node, name: str) -> bool:
    """Return whether a node calls a Python function or method equivalent to an operator."""
    if not name.startswith("aten::") or not _is_python(node):
        return False
    own, called = _function_name(node).rpartition(".")[2], name.partition("::")[2].partition(".")[0]
    return own.strip("_") == called.strip("_")


def _function_name(node: torch.fx.Node) -> str:
    if isinstance(node.target, str):
        return f"torch.Tensor.{node.target}"
    return qualified_name(node.target)


def _line(node: torch.fx.Node) -> str:
    line = source_line([node])
    return f", {line}" if line else ""


def _nested_nodes(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """Yield the nodes of graphs nested in a node that runs as one operator, with that node."""
    owner = graph.owning_module
    for node in graph.nodes:
        for used in node.all_input_nodes if owner is not None else ():
            if used.op == "get_attr":
                value: object = owner
                for part in str(used.target).split("."):
                    value = getattr(value, part, None)
                if isinstance(value, torch.fx.GraphModule):
                    for inner in value.graph.nodes:
                        yield node, inner
                    yield from ((node, inner) for _, inner in _nested_nodes(value.graph))
