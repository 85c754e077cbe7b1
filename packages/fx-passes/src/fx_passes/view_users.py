"""Where the memory of a value goes: the views taken of it, and whether it leaves the graph."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from torch._ops import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

__all__ = ["escapes", "meets_its_source", "views_of"]


def views_of(node: Node) -> Iterator[Node]:
    """Yield the views of a value, and the views of these."""
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user not in seen and _is_view(user):
                seen.add(user)
                pending.append(user)
                yield user


def escapes(node: Node) -> bool:
    """Return whether a value or a view of it is a result of the graph.

    Then whoever runs the graph may write it, so it must not share memory with anything that it did
    not share it with before.
    """
    return any(user.op == "output" for value in (node, *views_of(node)) for user in value.users)


def meets_its_source(copy: Node, source: Node) -> bool:
    """Return whether a copy is used together with what it was copied from, or in a manner unknown.

    Then it may keep apart what is read from what is written, once functional operators write in
    place again. Higher-order operators are such, as `auto_functionalized_v2`.

    Args:
        copy: The copy.
        source: What it was made of.
    """
    base = _base_of(source)
    copies = {copy, *views_of(copy)}
    for value in copies:
        for user in value.users:
            if user.op == "call_function" and not isinstance(user.target, OpOverload):
                if user.target is not operator.getitem:
                    return True
            elif any(
                each not in copies and _base_of(each) is base for each in user.all_input_nodes
            ):
                return True
    return False


def _base_of(node: Node) -> Node:
    """Return the value that a view, or a view of a view, is taken of."""
    while _is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _is_view(node: Node) -> bool:
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload):
        return False
    returns = target._schema.returns  # noqa: SLF001 - the only road to a schema
    return bool(returns) and returns[0].alias_info is not None
