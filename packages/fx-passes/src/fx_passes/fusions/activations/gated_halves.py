"""Patterns and conditions of `activation(gate) * up`, gate and up the halves of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.halves import HALVES, Parts, slices_problem
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.rule import Pattern


Activation = Callable[["Tensor"], "Tensor"]
"""What is applied to the gate, in a pattern."""

_REQUIREMENTS = (
    Requirement.on_npu("x"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16, torch.float32),
)


def halves_patterns(activation: Activation) -> tuple[Pattern, ...]:
    """Return the patterns of an activation of the first half times the second: every way to halve.

    Each has the parameters `x` and `dim`, and the output `y`.
    """

    def gated(parts: Parts) -> Linked:
        _, gate, up = parts
        return None, {"y": activation(gate) * up}

    return tuple(combine(halves, gated) for halves in HALVES)


def halves_problem(match: Match) -> NoMatch | None:
    """Return why gate and up are not the two halves of the last dimension, on an NPU."""
    return first_unmet(match, *_REQUIREMENTS) or _cut_problem(match)


def _cut_problem(match: Match) -> NoMatch | None:
    x, y = match.tensor("x"), match.tensor("y")
    bound = match.bound
    if bound["dim"] not in {-1, x.dim() - 1}:
        return NoMatch(f"the halves are along dimension {bound['dim']} of {x.dim()}, not the last")
    size, half = x.shape[-1], y.shape[-1]
    if not all(isinstance(each, int) for each in (size, half)):
        return NoMatch(f"the last dimension must be a number, found {size} and {half}")
    if 2 * half != size or not all(map(sizes_equal, x.shape[:-1], y.shape[:-1])):
        return NoMatch(f"{list(y.shape)} is not half of {list(x.shape)}")
    return slices_problem(bound, size)
