"""Fake values as a rewrite leaves them: what uses a value that is laid out otherwise follows it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import value_of
from fx_passes.matching.requirements import shapes_equal, sizes_equal
from fx_passes.torch_internals import FakeTensor, OpOverload, schema_of, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.fx import Node

    from fx_passes.rewriting.replaced_value import ReplacedValue


_UNKNOWN = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


def fake_result(target: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Run an operator on the fake values of its arguments.

    Args:
        target: The operator.
        args: Fake values, symbolic numbers, literals, or lists of these.
        kwargs: The same by name.
    """
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    mode = next((each.fake_mode for each in tensors if isinstance(each, FakeTensor)), None)
    if mode is None:
        return target(*args, **kwargs)
    with mode:
        return target(*args, **kwargs)


def record_behind(replaced: Iterable[ReplacedValue]) -> None:
    """Record new fake values, and those of what uses one that is laid out otherwise than before."""
    users: set[Node] = set()
    for _, old, node, new in replaced:
        if new is not None:
            node.meta["val"] = new
        if not _alike(old, new):
            users.update(node.users)
    if users:
        record_again(users)


def record_again(nodes: Iterable[Node]) -> None:
    """Record the fake values of some nodes again, by those of their arguments, and of their users.

    Strides and storage offsets are what changes. Users are followed up to where all is as recorded;
    what cannot be computed keeps its value.
    """
    pending = sorted(nodes)
    while pending:
        user = pending.pop(0)
        value = _run(user)
        if value is None or _alike(value_of(user), value):
            continue
        user.meta["val"] = value
        pending = sorted({*pending, *user.users})


def _run(node: Node) -> object:
    """Return the fake value that a node has by those of its arguments, or None if unknown."""
    recorded, target = value_of(node), node.target
    args = [value_of(argument) for argument in node.args]
    if target is operator.getitem and isinstance(args[0], (list, tuple)):
        result: object = operator.getitem(args[0], args[1])
        return result
    if (
        not isinstance(target, OpOverload)
        or not isinstance(recorded, (torch.Tensor, list, tuple))
        # What writes its argument would change the fake value of that.
        or schema_of(target).is_mutable
        or not _UNKNOWN.isdisjoint(target.tags)
        or any(value_of(each) is None for each in node.all_input_nodes)
    ):
        return None
    try:
        value = fake_result(target, args, {k: value_of(each) for k, each in node.kwargs.items()})
    except Exception:  # noqa: BLE001 - fake kernels of others raise what they like
        return None
    return value if _same_sizes(recorded, value) else None


def _tensors(value: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def _same_sizes(left: object, right: object) -> bool:
    mine, theirs = _tensors(left), _tensors(right)
    return len(mine) == len(theirs) and all(
        a.dtype == b.dtype and shapes_equal(a.shape, b.shape)
        for a, b in zip(mine, theirs, strict=True)
    )


def _alike(left: object, right: object) -> bool:
    """Return whether fake values are laid out alike; where one is not known, nothing follows."""
    if left is right:
        return True
    mine, theirs = _tensors(left), _tensors(right)
    if len(mine) != len(theirs) or not mine or not _same_sizes(left, right):
        return True
    return all(
        shapes_equal(a.stride(), b.stride()) and sizes_equal(a.storage_offset(), b.storage_offset())
        for a, b in zip(mine, theirs, strict=True)
    )
