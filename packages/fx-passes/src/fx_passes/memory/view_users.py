"""Where the memory of a value is used: its views, what shows, and whether it leaves the graph."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from fx_passes.memory.alias_analysis import GIVEN
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.fx import Node

    from fx_passes.memory.effect import EffectTable


def views_of(node: Node, effects: EffectTable) -> Iterator[Node]:
    """Yield the nodes that may be a value or a view of it, and their views."""
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


def shows_layout(node: Node, effects: EffectTable) -> Node | None:
    """Return a user through which the layout of a value is visible, or None.

    If there is one, the value must not be replaced by one with other strides. Either it reads the
    strides, or it shows that another user, such as `reshape`, copied because of them: it writes the
    memory or passes it out of the graph while that user's copy and the value are both in use.
    """
    family = (node, *views_of(node, effects))
    for value in family:
        for user in value.users:
            if _reads_strides(user):
                return user
    perhaps_copied = [each for each in family[1:] if effects.of(each).view_of is None]
    if all(_is_only_use(each, node, family) for each in perhaps_copied):
        return None
    for value in family:
        for user in value.users:
            if user.op == "output" or value in effects.of(user).writes:
                return user
    return None


def needs_contiguous(node: Node, effects: EffectTable) -> Node | None:
    """Return a user that may need a value to be contiguous, or None if certainly none does.

    This is a `view` of the value or of something computed from it elementwise, which keeps its
    strides; a reader of strides; the caller, for a result; and every operator that may use the
    memory directly: all except matrix products and torch_npu's operators, which accept any strides
    and return contiguous results.
    """
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user in seen or _takes_any_strides(user):
                continue
            if not _keeps_strides(user, effects):
                return user
            seen.add(user)
            pending.append(user)
    return None


def _takes_any_strides(user: Node) -> bool:
    aten, target = torch.ops.aten, user.target
    if not isinstance(target, OpOverload):
        return False
    if target.namespace == "npu":
        # A cast may give its argument, or one laid out like it.
        return "cast" not in target.name()  # type: ignore[no-untyped-call]
    return target.overloadpacket in {
        aten.addmm,
        aten.baddbmm,
        aten.bmm,
        aten.contiguous,
        aten.linear,
        aten.matmul,
        aten.mm,
    }


def _keeps_strides(user: Node, effects: EffectTable) -> bool:
    """Return whether the result of a user is laid out by its argument, and nothing else shows."""
    aten, target = torch.ops.aten, user.target
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload) or _reads_strides(user) or effects.of(user).barrier:
        return False
    casts = {aten._to_copy, aten.to, aten.reshape}  # noqa: SLF001 - the name of an operator
    if torch.Tag.pointwise in target.tags or target.overloadpacket in casts:
        return True
    strict = {aten.view, aten._unsafe_view}  # noqa: SLF001 - the name of an operator
    return target.is_view and target.overloadpacket not in strict


def _reads_strides(user: Node) -> bool:
    target = user.target
    if user.op == "call_method":
        return target in {"as_strided", "as_strided_", "stride"}
    aten = torch.ops.aten
    return isinstance(target, OpOverload) and target.overloadpacket in {
        aten.as_strided,
        aten.as_strided_,
        aten.as_strided_copy,
        aten.as_strided_scatter,
        aten.stride,
        aten.sym_stride,
    }


def _is_only_use(view: Node, of: Node, family: Sequence[Node]) -> bool:
    """Return whether nothing but this view of a view of a value uses any of them."""
    while view is not of:
        sources = [each for each in view.all_input_nodes if each in family]
        if len(sources) != 1 or len(sources[0].users) != 1:
            return False
        (view,) = sources
    return True


def meets_its_source(copy: Node, source: Node, effects: EffectTable) -> bool:
    """Return whether a copy is used together with its source, or in an unknown way.

    It may then separate reads from writes, once functional operators write in
    place again. Higher-order operators such as `auto_functionalized_v2` are unknown.
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
    """Return the base of a view, or of a view of a view."""
    while not effects.fresh(node) and (aliases := effects.of(node).aliases):
        node = aliases[0]
    return node


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
