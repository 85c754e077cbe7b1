"""The ways to cut a tensor into halves or neighbours of a dimension, as links of patterns."""

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


def neighbours(
    x: Tensor,
    dim: int,
    start: int | None,
    end: int | None,
    next_start: int | None,
    next_end: int | None,
) -> Linked:
    """Cut a tensor into its elements at even and at odd positions; a first link of patterns."""
    even = torch.ops.aten.slice.Tensor(x, dim, start, end, 2)
    odd = torch.ops.aten.slice.Tensor(x, dim, next_start, next_end, 2)
    return (x, even, odd), {}


HALVES: tuple[Link, ...] = (_chunked, _split, _split_in_sizes, _sliced)
"""First links of patterns; their inputs are `x`, `dim`, and sizes or bounds of slices."""


def slices_problem(bound: Mapping[str, object], size: int) -> NoMatch | None:
    """Return why slices of a match, if any, are not the halves or neighbours they should be."""
    if "next_start" in bound:
        names, step = ("start", "end", "next_start", "next_end"), ":2"
        parts, expected = "even and the odd elements", [[0, size, 1, size], [0, size - 1, 1, size]]
    elif "middle" in bound:
        names, step = ("start", "middle", "next_middle", "end"), ""
        parts, expected = "two halves", [[0, size // 2, size // 2, size]]
    else:
        return None
    first, first_end, second, second_end = (bound[name] for name in names)
    pairs = zip((first, first_end, second, second_end), (0, size) * 2, strict=True)
    if [_place_in(each, default, size) for each, default in pairs] in expected:
        return None
    return NoMatch(
        f"the slices [{first}:{first_end}{step}] and [{second}:{second_end}{step}] are not the "
        f"{parts} of {size}"
    )


def _place_in(bound: object, default: int, size: int) -> object:
    """Return where in a dimension a bound of a slice is; symbolic ones are returned as they are."""
    if bound is None:
        return default
    if not isinstance(bound, int):
        return bound
    return max(bound + size, 0) if bound < 0 else min(bound, size)
