"""Finds out whether a write is visible: whether others read the memory afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.memory.alias_analysis import GIVEN
from fx_passes.memory.view_users import views_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from fx_passes.memory.effect import EffectTable


def witness_of_write(writer: Node, effects: EffectTable) -> Node | None:
    """Return a node through which an operator's writes to its arguments may be visible, or None.

    If there is none, the writer may be replaced by an operator that computes its result elsewhere,
    because only users of the writer's result know the memory. Otherwise the node is an input of the
    graph or a tensor of the module, the result of a call that may return others' memory, or
    a user of the memory after the writer, possibly a result of the graph.

    Args:
        writer: The node; it may also return what it writes.
        effects: Reports what nodes write and what memory they share.
    """
    handed_on = {writer, *views_of(writer, effects)}
    for value in _sharing(writer, effects):
        if value in handed_on:
            continue
        if value.op in GIVEN or effects.of(value).barrier:
            return value
        for user in value.users:
            if user is not writer and not user < writer:
                return user
    return None


def _sharing(writer: Node, effects: EffectTable) -> Iterator[Node]:
    """Yield the nodes that may share memory with what a node writes, including itself.

    Earlier writes and the order of the graph do not matter.
    """
    pending = list(effects.of(writer).writes)
    seen = set(pending)
    while pending:
        value = pending.pop()
        yield value
        near = [*effects.of(value).aliases]
        near += [user for user in value.users if value in effects.of(user).aliases]
        for other in near:
            if other not in seen:
                seen.add(other)
                pending.append(other)
