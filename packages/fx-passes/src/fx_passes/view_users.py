"""Where the memory of a value goes: the views taken of it, and whether it leaves the graph."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from torch._ops import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

__all__ = ["escapes", "views_of"]


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


def _is_view(node: Node) -> bool:
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload):
        return False
    returns = target._schema.returns  # noqa: SLF001 - the only road to a schema
    return bool(returns) and returns[0].alias_info is not None
