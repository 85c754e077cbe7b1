"""Requirements of kernels on their inputs, as data that can explain a violation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import nodes_in
from fx_passes.matching.match import Match, NoMatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node


Tensors = tuple[torch.Tensor, ...]


def sizes_equal(left: object, right: object) -> bool:
    """Return whether two sizes are known to be equal; adds no guard to a symbolic one."""
    if isinstance(left, torch.SymInt) or isinstance(right, torch.SymInt):
        left_node = left.node.expr if isinstance(left, torch.SymInt) else left
        right_node = right.node.expr if isinstance(right, torch.SymInt) else right
        return bool(left_node == right_node)
    return left == right


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


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A condition on the tensors of some names of a match.

    Attributes:
        names: Names of pattern parameters, outputs or labels.
        problem: Returns the problem with their fake tensors, or None.
    """

    names: tuple[str, ...]
    problem: Callable[[Tensors], str | None]

    @classmethod
    def same_shape(cls, *names: str) -> Requirement:
        """All have the same shape; symbolic sizes must be the same expression."""

        def problem(tensors: Tensors) -> str | None:
            first = tensors[0]
            for name, other in zip(names[1:], tensors[1:], strict=True):
                if other.dim() != first.dim() or not all(
                    map(sizes_equal, first.shape, other.shape)
                ):
                    return (
                        f"`{names[0]}` has shape {list(first.shape)} and `{name}` "
                        f"{list(other.shape)}; the kernel does not broadcast"
                    )
            return None

        return cls(names=names, problem=problem)

    @classmethod
    def same_dtype(cls, *names: str) -> Requirement:
        """All have the same dtype."""

        def problem(tensors: Tensors) -> str | None:
            for name, other in zip(names, tensors, strict=True):
                if other.dtype != tensors[0].dtype:
                    return (
                        f"`{names[0]}` has dtype {tensors[0].dtype} and `{name}` {other.dtype}; "
                        "the kernel takes one dtype"
                    )
            return None

        return cls(names=names, problem=problem)

    @classmethod
    def dtype_in(cls, name: str, *dtypes: torch.dtype) -> Requirement:
        """The dtype is one that the kernel takes."""

        def problem(tensors: Tensors) -> str | None:
            if tensors[0].dtype in dtypes:
                return None
            allowed = ", ".join(map(str, dtypes))
            return f"`{name}` has dtype {tensors[0].dtype}; the kernel takes {allowed}"

        return cls(names=(name,), problem=problem)

    @classmethod
    def rank(cls, name: str, rank: int) -> Requirement:
        """The number of dimensions is the one that the kernel takes."""

        def problem(tensors: Tensors) -> str | None:
            if tensors[0].dim() == rank:
                return None
            return f"`{name}` has {tensors[0].dim()} dimensions; the kernel takes {rank}"

        return cls(names=(name,), problem=problem)

    @classmethod
    def on_npu(cls, name: str) -> Requirement:
        """The tensor is on an NPU, or on no device at all (a meta tensor)."""

        def problem(tensors: Tensors) -> str | None:
            kind = tensors[0].device.type
            if kind in {"npu", "privateuseone", "meta"}:
                return None
            return f"`{name}` is on the device {kind!r}; the kernel runs on an NPU"

        return cls(names=(name,), problem=problem)


def first_unmet(match: Match, *requirements: Requirement) -> NoMatch | None:
    """Return why the first of some requirements is not met, or None when all are."""
    for requirement in requirements:
        tensors = match.tensors(*requirement.names)
        if isinstance(tensors, NoMatch):
            return tensors
        problem = requirement.problem(tensors)
        if problem is not None:
            return NoMatch(problem, _nodes(match, requirement.names))
    return None


def _nodes(match: Match, names: tuple[str, ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for name in names:
        found += nodes_in(match.bound.get(name, match.outputs.get(name, match.labels.get(name))))
    return tuple(found)
