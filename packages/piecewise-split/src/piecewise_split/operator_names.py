"""Names of operators: the forms that callers can use, and the nodes that match them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from piecewise_split.errors import SplittingOpError
from piecewise_split.torch_internals import HigherOrderOperator, OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    import torch

_QUALIFIED = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")
_DOTTED = re.compile(r"(?:torch\.ops\.)?(\w+)\.(\w+)(?:\.(\w+))?")


def parse_operator_name(operator: str | OpOverload | OpOverloadPacket) -> str:
    """Convert the name of an operator to ``ns::op`` or ``ns::op.overload``.

    Args:
        operator: ``"ns::op"``, ``"ns::op.overload"``, the dotted forms ``"ns.op"``,
            ``"ns.op.overload"`` and ``"torch.ops.ns.op"``, or the operator object itself.

    Returns:
        The canonical name. Without an overload it means every overload.

    Raises:
        SplittingOpError: The text has none of these forms.
    """
    text = operator if isinstance(operator, str) else str(operator)
    match = _QUALIFIED.fullmatch(text) or _DOTTED.fullmatch(text)
    if match is None:
        raise SplittingOpError(
            f"Reading the name of a splitting op: {operator!r} is not an operator name; expected "
            f"'ns::op' or 'ns::op.overload', for example 'aten::mm' or 'aten::add.Tensor'."
        )
    namespace, name, overload = match.groups()
    return f"{namespace}::{name}" + (f".{overload}" if overload else "")


def called_operator(node: torch.fx.Node) -> OpOverload | OpOverloadPacket | None:
    """Return the registered operator that a node calls, or None for any other node.

    A higher-order operator that runs a registered operator for its side effects
    (``auto_functionalized``, ``with_effects``) counts as a call of that operator.
    """
    if node.op != "call_function":
        return None
    target = node.target
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return target
    if isinstance(target, HigherOrderOperator):
        return next((arg for arg in node.args if isinstance(arg, OpOverload)), None)
    return None


def packet_name(operator: OpOverload | OpOverloadPacket) -> str:
    """Return ``ns::op`` of an operator, without its overload."""
    return parse_operator_name(operator).partition(".")[0]


def answers_to(operator: OpOverload | OpOverloadPacket, name: str) -> bool:
    """Return whether a called operator matches a canonical name.

    Args:
        operator: The operator that a node calls: an overload (ATen graph) or a packet (Dynamo
            graph).
        name: Canonical name from :func:`parse_operator_name`.

    Raises:
        SplittingOpError: The name has an overload, the graph calls the packet, and the
            packet has several overloads, so the graph does not determine which one will run.
    """
    packet, _, overload = name.partition(".")
    if packet_name(operator) != packet:
        return False
    if not overload:
        return True
    if isinstance(operator, OpOverload):
        return parse_operator_name(operator) == name
    overloads: list[str] = operator.overloads()  # type: ignore[no-untyped-call]
    if overload in overloads and len(overloads) > 1:
        raise SplittingOpError(
            f"Looking for splitting op {name!r}: the graph calls {packet!r} without naming an "
            f"overload and it has {len(overloads)} ({', '.join(overloads)}), so the overload is "
            f"not known before the call. Use {packet!r}, or split a graph at ATen level."
        )
    return overload in overloads
