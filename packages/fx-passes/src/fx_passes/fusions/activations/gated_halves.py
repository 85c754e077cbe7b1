"""Patterns and conditions of `activation(gate) * up`, gate and up the halves of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked

__all__ = ["CUTS_IN_HALVES", "Activation", "halves_patterns", "halves_problem", "slice_ends"]

Activation = Callable[["Tensor"], "Tensor"]
"""What is applied to the gate, in a pattern."""

Pattern = Callable[..., "dict[str, Tensor]"]

_REQUIREMENTS = (
    Requirement.on_npu("x"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16, torch.float32),
)


def _chunked(x: Tensor, dim: int) -> Linked:
    halves = torch.ops.aten.chunk(x, 2, dim)
    return (halves[0], halves[1]), {}


def _split_in_equal_parts(x: Tensor, size: int, dim: int) -> Linked:
    halves = torch.ops.aten.split.Tensor(x, size, dim)
    return (halves[0], halves[1]), {}


def _split_in_sizes(x: Tensor, sizes: Sequence[int], dim: int) -> Linked:
    halves = torch.ops.aten.split_with_sizes(x, sizes, dim)
    return (halves[0], halves[1]), {}


def _sliced(
    x: Tensor, dim: int, start: int | None, middle: int, next_middle: int, end: int | None
) -> Linked:
    gate = torch.ops.aten.slice.Tensor(x, dim, start, middle, 1)
    up = torch.ops.aten.slice.Tensor(x, dim, next_middle, end, 1)
    return (gate, up), {}


CUTS_IN_HALVES = (_chunked, _split_in_equal_parts, _split_in_sizes, _sliced)
"""Every way to halve `x` along `dim`: links of `combine` that return the two halves."""


def halves_patterns(activation: Activation) -> tuple[Pattern, ...]:
    """Return the patterns of an activation of the first half times the second: every way to halve.

    Each has the parameters `x` and `dim`, and the output `y`.
    """

    def gated(halves: tuple[Tensor, Tensor]) -> Linked:
        return None, {"y": activation(halves[0]) * halves[1]}

    return tuple(combine(cut, gated) for cut in CUTS_IN_HALVES)


def halves_problem(match: Match) -> NoMatch | None:
    """Return why gate and up are not the two halves of the last dimension, on an NPU."""
    return first_unmet(match, *_REQUIREMENTS) or _cut_problem(match)


def _cut_problem(match: Match) -> NoMatch | None:
    tensors = match.tensors("x", "y")
    if isinstance(tensors, NoMatch):
        return tensors
    x, y = tensors
    bound = match.bound
    if bound["dim"] not in {-1, x.dim() - 1}:
        return NoMatch(f"the halves are along dimension {bound['dim']} of {x.dim()}, not the last")
    size, half = x.shape[-1], y.shape[-1]
    if not all(isinstance(each, int) for each in (size, half)):
        return NoMatch(f"the last dimension must be a number, found {size} and {half}")
    if 2 * half != size or not all(map(sizes_equal, x.shape[:-1], y.shape[:-1])):
        return NoMatch(f"{list(y.shape)} is not half of {list(x.shape)}")
    if "start" in bound:
        wanted = (0, size // 2, size // 2, size)
        if slice_ends(match, size, "start", "middle", "next_middle", "end") != wanted:
            return NoMatch(
                f"the slices [{bound['start']}:{bound['middle']}] and "
                f"[{bound['next_middle']}:{bound['end']}] are not the two halves of {size}"
            )
    return None


def slice_ends(match: Match, size: int, *names: str) -> tuple[object, ...]:
    """Return where two slices of a dimension start and end, from 0 to its size.

    Args:
        match: The match.
        size: Size of the dimension.
        names: Names of the bound start and end of the first slice, then of the second. Values that
            are not numbers are returned as they are.
    """

    def place(name: str, default: int) -> object:
        value = match.bound[name]
        if value is None:
            return default
        if not isinstance(value, int):
            return value
        return max(value + size, 0) if value < 0 else min(value, size)

    defaults = (0, size) * (len(names) // 2)
    return tuple(place(name, default) for name, default in zip(names, defaults, strict=True))
