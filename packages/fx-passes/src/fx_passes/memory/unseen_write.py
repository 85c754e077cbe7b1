"""Whether a write shows: who reads the memory afterwards otherwise than by the writer's result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.memory.view_users import views_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from fx_passes.memory.effect import EffectTable

__all__ = ["witness_of_write"]

_GIVEN = frozenset({"placeholder", "get_attr"})


def witness_of_write(writer: Node, effects: EffectTable) -> Node | None:
    """Return a node by which it may show that an operator writes its arguments, or None.

    Where there is none, the writer may be replaced by what computes its result elsewhere: nobody
    knows the memory that it writes but those who have it from the writer. Else it is an input of
    the graph or a tensor of the module, the result of a call that may return memory of others, or
    what uses the memory after the writer, which may be a result of the graph.

    Args:
        writer: The node; what it writes may be its result as well, or may be not.
        effects: Tells what nodes write and what memory they share.
    """
    handed_on = {writer, *views_of(writer, effects)}
    for value in _sharing(writer, effects):
        if value in handed_on:
            continue
        if value.op in _GIVEN or effects.of(value).barrier:
            return value
        for user in value.users:
            if user is not writer and not user < writer:
                return user
    return None


def _sharing(writer: Node, effects: EffectTable) -> Iterator[Node]:
    """Yield what may share memory with what a node writes, itself included, by any number of ways.

    Who wrote what before does not matter, and neither does the order of the graph.
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
