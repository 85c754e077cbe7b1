"""Requirements of kernels on their inputs, each a function that explains a violation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import nodes_in
from fx_passes.matching.match import Match, NoMatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from torch.fx import Node


def sizes_equal(left: object, right: object) -> bool:
    """Return whether two sizes are known to be equal; adds no guard to a symbolic one."""
    if isinstance(left, torch.SymInt) or isinstance(right, torch.SymInt):
        left_node = left.node.expr if isinstance(left, torch.SymInt) else left
        right_node = right.node.expr if isinstance(right, torch.SymInt) else right
        return bool(left_node == right_node)
    return left == right


def shapes_equal(left: Sequence[object], right: Sequence[object]) -> bool:
    """Return whether two shapes are known to be equal; adds no guard to symbolic sizes."""
    return len(left) == len(right) and all(map(sizes_equal, left, right))


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is known to be contiguous; adds no guard to symbolic sizes."""
    expected: int | torch.SymInt = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if sizes_equal(size, 1):
            continue
        if not sizes_equal(stride, expected):
            return False
        expected = expected * size
    return True


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a literal is a number that a kernel takes; a bool is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same_shape(match: Match, *names: str) -> NoMatch | None:
    """Return which tensor has another shape than the first; symbolic sizes must be the same."""
    first = match.tensor(names[0])
    for name in names[1:]:
        other = match.tensor(name)
        if not shapes_equal(first.shape, other.shape):
            reason = (
                f"`{names[0]}` has shape {list(first.shape)} and `{name}` {list(other.shape)}; "
                "the kernel does not broadcast"
            )
            return _unmet(match, names, reason)
    return None


def same_dtype(match: Match, *names: str) -> NoMatch | None:
    """Return which tensor has another dtype than the first."""
    first = match.tensor(names[0]).dtype
    for name in names[1:]:
        other = match.tensor(name).dtype
        if other != first:
            reason = (
                f"`{names[0]}` has dtype {first} and `{name}` {other}; the kernel takes one dtype"
            )
            return _unmet(match, names, reason)
    return None


def dtype_in(match: Match, name: str, *dtypes: torch.dtype) -> NoMatch | None:
    """Return why the dtype is none that the kernel takes."""
    dtype = match.tensor(name).dtype
    if dtype in dtypes:
        return None
    allowed = ", ".join(map(str, dtypes))
    return _unmet(match, (name,), f"`{name}` has dtype {dtype}; the kernel takes {allowed}")


def rank_is(match: Match, rank: int, *names: str) -> NoMatch | None:
    """Return which tensor has another number of dimensions than the kernel takes."""
    for name in names:
        found = match.tensor(name).dim()
        if found != rank:
            return _unmet(
                match, (name,), f"`{name}` has {found} dimensions; the kernel takes {rank}"
            )
    return None


def on_npu(match: Match, *names: str) -> NoMatch | None:
    """Return which tensor is neither on an NPU nor on no device at all (a meta tensor)."""
    for name in names:
        kind = match.tensor(name).device.type
        if kind not in {"npu", "privateuseone", "meta"}:
            return _unmet(
                match, (name,), f"`{name}` is on the device {kind!r}; the kernel runs on an NPU"
            )
    return None


def _unmet(match: Match, names: tuple[str, ...], reason: str) -> NoMatch:
    found: list[Node] = []
    for name in names:
        found += nodes_in(match.bound.get(name, match.outputs.get(name, match.labels.get(name))))
    return NoMatch(reason, tuple(found))
