"""Fake values that a rewrite replaces: compared with the new ones, which then are recorded."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_passes.graph_argument import value_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import is_dense, shapes_equal, sizes_equal
from fx_passes.memory import needs_contiguous, shows_layout
from fx_passes.torch_internals import FakeTensor, OpOverload, schema_of, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


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


class ReplacedValue(NamedTuple):
    """A fake value that a rewrite replaces by another.

    Attributes:
        output: The node of the output.
        old: Its fake value; None if it has none.
        node: The node that replaces it.
        new: The fake value that this will have; None if it has none.
    """

    output: Node
    old: object
    node: Node
    new: object


def replaced_values(
    match: Match, replacements: Mapping[str, Node], build: GraphBuilder
) -> list[ReplacedValue]:
    """Return the values that a rewrite replaces, without those that it hands on as they are.

    Args:
        match: The match.
        replacements: What the rewrite returned, by output of the pattern.
        build: What the nodes were built with.
    """
    found = []
    for name, node in replacements.items():
        output = match.outputs[name]
        old, new = value_of(output), build.value_when_taken(node)
        if new is not old:
            found.append(ReplacedValue(output, old, node, new))
    return found


def replaced_value_problem(replaced: Collection[ReplacedValue], match: Match) -> NoMatch | None:
    """Return which replacement has another fake value than what it replaces, or None.

    Values must be of one kind (a tensor, a number, as many results), and tensors of one dtype,
    device, layout and shape; symbolic sizes must be known to be equal. Strides must be equal too,
    unless no user shows how the value is laid out, and the replacement is contiguous (as results of
    fused kernels are, where the graph had slices) or no user needs it to be. Values that the graph
    does not record are not compared.

    Args:
        replaced: What the rewrite replaces.
        match: The match.
    """
    for output, old, _, new in replaced:
        problem = _problem(output, old, new, match)
        if problem is not None:
            return NoMatch(f"the replacement of `{output.name}` has {problem}", (output,))
    return None


def _problem(node: Node, old: object, new: object, match: Match) -> str | None:
    if old is None or new is None:
        return None
    if isinstance(old, (tuple, list)) and isinstance(new, (tuple, list)):
        if len(old) != len(new):
            return f"{len(new)} results, expected {len(old)}"
        pairs = zip(old, new, strict=True)
        problems = (_problem(node, *each, match) for each in pairs)
        return next((each for each in problems if each is not None), None)
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        return _tensor_problem(old, new) or _stride_problem(node, old, new, match)
    same = isinstance(old, torch.Tensor) == isinstance(new, torch.Tensor)
    return None if same else f"the value {_kind(new)}, expected {_kind(old)}"


def _tensor_problem(old: torch.Tensor, new: torch.Tensor) -> str | None:
    for what, found, wanted in (
        ("dtype", new.dtype, old.dtype),
        ("device", new.device.type, old.device.type),
        ("layout", new.layout, old.layout),
        ("rank", new.dim(), old.dim()),
    ):
        if found != wanted:
            return f"{what} {found}, expected {wanted}"
    if _equal(new.shape, old.shape):
        return None
    return f"shape {list(new.shape)}, expected {list(old.shape)}"


def _stride_problem(node: Node, old: torch.Tensor, new: torch.Tensor, match: Match) -> str | None:
    if old.layout is not torch.strided or _same_places(old, new):
        return None
    found = f"strides {list(new.stride())}, expected {list(old.stride())}"
    user = None if is_dense(new) else needs_contiguous(node, match.effects)
    if user is not None:
        return f"{found} or a contiguous result for `{user.name}`"
    reader = shows_layout(node, match.effects)
    return None if reader is None else f"{found}, which `{reader.name}` shows"


def _same_places(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Return whether elements surely lie equally far apart; a dimension of one has no distance."""
    if any(sizes_equal(size, 0) for size in old.shape):
        return True
    pairs = zip(old.shape, old.stride(), new.stride(), strict=True)
    counted = [(left, right) for size, left, right in pairs if not sizes_equal(size, 1)]
    return _equal((each[0] for each in counted), (each[1] for each in counted))


def _equal(left: Iterable[object], right: Iterable[object]) -> bool:
    """Return whether sizes are surely equal; adds no guards."""
    return all(
        sizes_equal(one, other) or statically_known_true(one == other)
        for one, other in zip(left, right, strict=True)
    )


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "of a tensor"
    return f"of {len(value)} results" if isinstance(value, (tuple, list)) else f"{value}"
