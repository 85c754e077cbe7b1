"""Whether one value may be used in place of another that is equal to it, and nobody can tell.

Equal elements are not all that a program can see of a tensor. It has an identity, which shows when
a result of the graph is resized or compared with an input; memory, which shows when that is
written; and a place in its memory, which shows to operators that read the storage offset or need an
aligned address. Every pass that replaces a value by an existing one asks here.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal, value_of
from fx_passes.matching.match import NoMatch
from fx_passes.matching.requirements import is_dense, shapes_equal
from fx_passes.memory import escapes, meets_its_source, views_of
from fx_passes.memory.alias_analysis import GIVEN
from fx_passes.rewriting.checks.overwritten_values import overwritten_values
from fx_passes.torch_internals import OpOverload, storage_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fx_passes.memory import EffectTable


aten = torch.ops.aten
# Their operators do not depend on where in its memory a tensor begins, but for `_READS_PLACEMENT`.
_OF_TORCH = frozenset({"_c10d_functional", "_c10d_functional_autograd", "aten", "prims"})
# Their kernels get an address, and are fastest or right at aligned ones only.
_OF_TORCH_NPU = frozenset({"atb", "npu"})
_ALIGNMENT = 32
_READS_PLACEMENT = frozenset(
    {
        "_grouped_mm",
        "_scaled_grouped_mm",
        "_scaled_grouped_mm_v2",
        "_scaled_mm",
        "_scaled_mm_v2",
        "as_strided",
        "as_strided_",
        "as_strided_copy",
        "as_strided_scatter",
        "is_set_to",
        "resize",
        "resize_",
        "resize_as",
        "resize_as_",
        "set",
        "set_",
        "storage_offset",
        "sym_storage_offset",
        "view_as_complex",
    }
)
# Their results begin in memory of their own where the first argument begins in its memory: torch
# clones that argument with its strides and its storage offset (`clone_preserve_strides`).
_FOLLOWS_PLACEMENT = frozenset({"copy", "diagonal_scatter", "select_scatter", "slice_scatter"})
# Beside operators that torch tags as in-place views.
_CHANGES_OBJECT = frozenset({"rename_", "requires_grad_"})
_KEEPS_OFFSET = frozenset(
    {
        aten._unsafe_view.default,  # noqa: SLF001 - the name of the operator
        aten.permute.default,
        aten.reshape.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)

_Relation = Literal["same object", "view", "copy"]


def substitution_problem(
    old: Node,
    new: Node,
    effects: EffectTable,
    *,
    created: Collection[Node] = (),
    is_recomputed: bool = False,
) -> NoMatch | None:
    """Return who could tell that the users of one value are given another, or None.

    That the values are equal is known to the caller, and so is that nothing writes the memory of
    either later, other than through a view that stays one.

    Args:
        old: The node that is used now.
        new: The node that is to be used in its place.
        effects: Tells what nodes write and what memory they share.
        created: Nodes of the rewrite, `new` among them where it was made for this purpose.
        is_recomputed: Whether the nodes are equal calls, of which neither is a copy of the other.
            One node may then use both.
    """
    for shown in _existing(new, effects, created):
        relation = _relation(old, shown, effects)
        if relation == "same object" and shown is new:
            continue
        if relation == "copy":
            problem = _separation_problem(old, new, shown, effects, is_recomputed=is_recomputed)
        elif shown is new:
            problem = _identity_problem(old, new, effects)
        else:
            problem = None
        if problem is not None:
            return problem
    return None


def placement_problem(
    users: Iterable[Node], old: Node, new: Node, effects: EffectTable
) -> NoMatch | None:
    """Return a user that could tell where in its memory a value begins, if that changes, or None.

    Users of results that begin where the value begins could tell it too.

    Args:
        users: Nodes that use `old`, or views of it, and are to use `new`.
        old: The node that is used now.
        new: The node that is to be used in its place.
        effects: Tells what memory nodes share.
    """
    placed, pending = [old, *views_of(old, effects)], list(users)
    for user in pending:
        if _follows_placement(user) and user.args[0] in placed:
            placed += (results := [user, *views_of(user, effects)])
            reached = dict.fromkeys(each for value in results for each in value.users)
            pending += [each for each in reached if each not in pending]
        seen = _sees(user)
        if seen == "nothing":
            continue
        if seen == "alignment" and all(map(_is_aligned, (new, *_overwritten(new, effects)))):
            continue
        if (
            _is_allocated_inside(new, effects)
            and _is_allocated_inside(old, effects)
            and _laid_out_alike(old, new)
        ):
            continue
        return NoMatch(
            f"`{user.name}` ({user.target}) may depend on where in its memory a tensor begins; "
            f"`{old.name}` and `{new.name}` may differ in that",
            (user, old, new),
        )
    return None


def _existing(new: Node, effects: EffectTable, created: Collection[Node]) -> Iterator[Node]:
    """Yield the values that were there before and whose memory a node may show."""
    pending, seen = [new], {new}
    while pending:
        node = pending.pop()
        if node not in created:
            yield node
        elif not effects.fresh(node) and _reshape(node) != "copy":
            found = set(effects.of(node).aliases) - seen
            seen |= found
            pending += found


def _relation(old: Node, source: Node, effects: EffectTable) -> _Relation:
    """Return what a value is to another in a run without rewrites, `copy` where it may be one."""
    same = True
    node = old
    while node is not source:
        # Operators of others may return an argument as it is: a rule that replaces one by that
        # argument knows that it does.
        foreign = isinstance(node.target, OpOverload) and node.target.namespace not in _OF_TORCH
        if foreign and source in effects.of(node).aliases:
            return "same object" if same else "view"
        above = _step(node, effects)
        if above is None:
            return "view" if _owner(old, effects) is _owner(source, effects) else "copy"
        same = same and (_is_argument(node) or bool(effects.of(node).writes))
        node = above
    return "same object" if same else "view"


def _owner(node: Node, effects: EffectTable) -> Node:
    while (above := _step(node, effects)) is not None:
        node = above
    return node


def _step(node: Node, effects: EffectTable) -> Node | None:
    """Return the argument that a node is or shows for sure, or None."""
    if effects.fresh(node):
        return None
    shown = effects.of(node).view_of
    if shown is None and (_is_argument(node) or _reshape(node) == "view"):
        shown = node.args[0] if isinstance(node.args[0], Node) else None
    return shown


def _is_argument(node: Node) -> bool:
    """Return whether a call of torch surely returns its first argument, the very object."""
    if node.target is aten.contiguous.default and not node.kwargs and len(node.args) == 1:
        value = value_of(node.args[0])
        return isinstance(value, torch.Tensor) and is_dense(value)
    if node.target is aten.to.dtype and not node.kwargs and len(node.args) == 2:
        value = value_of(node.args[0])
        return isinstance(value, torch.Tensor) and value.dtype is node.args[1]
    return False


def _reshape(node: Node) -> Literal["view", "copy", "unknown"]:
    """Return what a reshape gives, as far as its argument tells."""
    if node.target is not aten.reshape.default:
        return "unknown"
    x, y = value_of(node.args[0]), value_of(node)
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return "unknown"
    if is_dense(x) or shapes_equal(x.shape, y.shape):
        return "view"
    if not all(isinstance(size, int) for size in (*x.shape, *x.stride(), *y.shape)):
        return "unknown"
    source = torch.empty_strided(x.shape, x.stride(), device="meta")
    made = source.reshape(y.shape)
    return "view" if storage_key(made) == storage_key(source) else "copy"


def _separation_problem(
    old: Node, new: Node, source: Node, effects: EffectTable, *, is_recomputed: bool
) -> NoMatch | None:
    """Return who could tell that a value no longer has memory of its own."""
    if escapes(old, effects):
        return NoMatch(f"`{old.name}` leaves the graph, in memory of its own", (old,))
    if not is_recomputed and meets_its_source(old, source, effects):
        return NoMatch(
            f"`{old.name}` is used beside `{source.name}`, which may be written", (old, source)
        )
    family = (old, *views_of(old, effects))
    users = [user for value in family for user in value.users]
    return _change_problem(users) or placement_problem(users, old, new, effects)


def _identity_problem(old: Node, new: Node, effects: EffectTable) -> NoMatch | None:
    """Return who could tell that a view is now the very object that it was taken of."""
    mine, theirs = _same_objects(old, effects), _same_objects(new, effects)
    problem = _change_problem(user for value in (*mine, *theirs) for user in value.users)
    if problem is not None:
        return problem
    for user in (user for value in mine for user in value.users):
        if user.op != "output" and not effects.of(user).barrier:
            continue
        given = any(value.op in GIVEN for value in theirs)
        returned = any(each.op == "output" for value in theirs for each in value.users)
        if given or returned:
            return NoMatch(
                f"`{old.name}` leaves the graph as another object than `{new.name}`, which is "
                + ("given to it" if given else "a result of it too"),
                (old, new),
            )
    return None


def _same_objects(node: Node, effects: EffectTable) -> list[Node]:
    """Return the nodes whose value may be one object with that of a node, itself among them."""
    found = [node]
    for value in found:
        found += [each for each in _returned_arguments(value, effects) if each not in found]
        found += [
            user
            for user in value.users
            if user not in found and value in _returned_arguments(user, effects)
        ]
    return found


def _returned_arguments(node: Node, effects: EffectTable) -> Collection[Node]:
    """Return the arguments of which a node may return the very object."""
    if effects.fresh(node):
        return ()
    effect = effects.of(node)
    if effect.view_of is None:
        # An operator that may return an argument as it is, or a copy; a reshape never does.
        return () if node.target is aten.reshape.default else effect.aliases
    if effect.writes or (
        node.target is operator.getitem and not isinstance(value_of(effect.view_of), torch.Tensor)
    ):
        return (effect.view_of,)
    return ()


def _change_problem(users: Iterable[Node]) -> NoMatch | None:
    """Return a user that changes the object that it is given, not only its memory."""
    for user in users:
        if _changes_object(user):
            return NoMatch(f"`{user.name}` changes the shape or the memory of an object", (user,))
    return None


def _changes_object(user: Node) -> bool:
    target: Any = user.target
    if isinstance(target, OpOverload):
        overloads, name = [target], target.overloadpacket.__name__
    elif user.op == "call_method":
        packet, name = getattr(aten, target, None), target
        overloads = [getattr(packet, each) for each in packet.overloads()] if packet else []
    else:
        return False
    return name in _CHANGES_OBJECT or any(
        torch.Tag.inplace_view in overload.tags for overload in overloads
    )


def _sees(user: Node) -> Literal["nothing", "alignment", "placement"]:
    """Return what an operator may see of the place of a tensor in its memory."""
    target = user.target
    if target is operator.getitem:
        return "nothing"
    if not isinstance(target, OpOverload):
        return "placement"
    if target.namespace in _OF_TORCH:
        name = target.overloadpacket.__name__
        reads = name in _READS_PLACEMENT or target is aten.view.dtype
        return "placement" if reads else "nothing"
    return "alignment" if target.namespace in _OF_TORCH_NPU else "placement"


def _follows_placement(user: Node) -> bool:
    target = user.target
    return (
        isinstance(target, OpOverload)
        and target.namespace == "aten"
        and target.overloadpacket.__name__ in _FOLLOWS_PLACEMENT
    )


def _is_aligned(node: Node) -> bool:
    """Return whether a value begins at an aligned address, if its memory does.

    As memory of allocators does. Another call may give an input another offset, which operators of
    torch_npu take as they take any input; its offset at this call counts.
    """
    offset = _offset(node)
    return offset is not None and offset % _ALIGNMENT == 0


def _is_allocated_inside(node: Node, effects: EffectTable) -> bool:
    """Return whether an operator of torch or torch_npu in the graph allocated a value's memory.

    And `reinplace` will not write the value into other memory where it begins elsewhere.
    """
    owner = _owner(node, effects)
    return (
        isinstance(owner.target, OpOverload)
        and owner.target.namespace in _OF_TORCH | _OF_TORCH_NPU
        and effects.fresh(owner)
        and all(
            _owner(value, effects).op not in GIVEN and literals_equal(_offset(value), 0)
            for value in _overwritten(node, effects)
        )
    )


def _overwritten(node: Node, effects: EffectTable) -> list[Node]:
    return overwritten_values(_owner(node, effects), lambda value: _owner(value, effects))


def _offset(node: Node) -> int | None:
    """Return how many bytes behind the beginning of its memory a value begins, if known."""
    while node.target in _KEEPS_OFFSET and isinstance(node.args[0], Node):
        node = node.args[0]
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return None
    offset = value.storage_offset()
    return offset * value.element_size() if isinstance(offset, int) else None


def _laid_out_alike(old: Node, new: Node) -> bool:
    before, after = value_of(old), value_of(new)
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and literals_equal(_offset(old), _offset(new))
        and shapes_equal(before.stride(), after.stride())
    )
