"""Where the memory of a value goes: the views taken of it, and whether it leaves the graph."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from fx_passes.memory.effect import EffectTable

__all__ = ["escapes", "meets_its_source", "views_of"]


def views_of(node: Node, effects: EffectTable) -> Iterator[Node]:
    """Yield what may be a value or a view of it, and what may be a view of these."""
    pending, seen = [node], {node}
    while pending:
        value = pending.pop()
        for user in value.users:
            if user not in seen and not effects.fresh(user) and value in effects.of(user).aliases:
                seen.add(user)
                pending.append(user)
                yield user


def escapes(node: Node, effects: EffectTable) -> bool:
    """Return whether a value or a view of it is a result of the graph.

    Then whoever runs the graph may write it, so it must not share memory with anything that it did
    not share it with before.
    """
    return any(
        user.op == "output" for value in (node, *views_of(node, effects)) for user in value.users
    )


def meets_its_source(copy: Node, source: Node, effects: EffectTable) -> bool:
    """Return whether a copy is used together with what it was copied from, or in a manner unknown.

    Then it may keep apart what is read from what is written, once functional operators write in
    place again. Higher-order operators are such, as `auto_functionalized_v2`.

    Args:
        copy: The copy.
        source: What it was made of.
        effects: Tells what shares memory.
    """
    base = _base_of(source, effects)
    copies = {copy, *views_of(copy, effects)}
    for value in copies:
        for user in value.users:
            if user.op == "call_function" and not isinstance(user.target, OpOverload):
                if user.target is not operator.getitem:
                    return True
            elif any(
                each not in copies and _base_of(each, effects) is base
                for each in user.all_input_nodes
            ):
                return True
    return False


def _base_of(node: Node, effects: EffectTable) -> Node:
    """Return the value that a view, or a view of a view, is taken of."""
    while not effects.fresh(node) and (aliases := effects.of(node).aliases):
        node = aliases[0]
    return node
