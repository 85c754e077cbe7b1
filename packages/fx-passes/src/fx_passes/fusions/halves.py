"""The ways to cut a tensor into the two halves of a dimension, as links of patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import NoMatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked

Parts = tuple["Tensor", "Tensor", "Tensor"]
"""A tensor and two parts of it, which these links hand on."""


def _chunked(x: Tensor, dim: int) -> Linked:
    halves = torch.ops.aten.chunk(x, 2, dim)
    return (x, halves[0], halves[1]), {}


def _split(x: Tensor, size: int, dim: int) -> Linked:
    halves = torch.ops.aten.split.Tensor(x, size, dim)
    return (x, halves[0], halves[1]), {}


def _split_in_sizes(x: Tensor, sizes: Sequence[int], dim: int) -> Linked:
    halves = torch.ops.aten.split_with_sizes(x, sizes, dim)
    return (x, halves[0], halves[1]), {}


def _sliced(
    x: Tensor, dim: int, start: int | None, middle: int, next_middle: int, end: int | None
) -> Linked:
    first = torch.ops.aten.slice.Tensor(x, dim, start, middle, 1)
    second = torch.ops.aten.slice.Tensor(x, dim, next_middle, end, 1)
    return (x, first, second), {}


HALVES: tuple[Link, ...] = (_chunked, _split, _split_in_sizes, _sliced)
"""First links of patterns; their inputs are `x`, `dim`, and sizes or bounds of slices."""


def slices_problem(bound: Mapping[str, object], size: int) -> NoMatch | None:
    """Return why the slices of a match, if it has any, are not the halves of a dimension.

    Args:
        bound: What the parameters of the match stand for.
        size: The size of the dimension.
    """
    if "start" not in bound:
        return None
    names = (("start", 0), ("middle", size), ("next_middle", 0), ("end", size))
    cut = [place_in(bound[name], default, size) for name, default in names]
    if cut == [0, size // 2, size // 2, size]:
        return None
    return NoMatch(
        f"the slices [{bound['start']}:{bound['middle']}] and "
        f"[{bound['next_middle']}:{bound['end']}] are not the two halves of {size}"
    )


def place_in(bound: object, default: int, size: int) -> object:
    """Return where in a dimension a bound of a slice is; symbolic ones are returned as they are."""
    if bound is None:
        return default
    if not isinstance(bound, int):
        return bound
    return max(bound + size, 0) if bound < 0 else min(bound, size)
