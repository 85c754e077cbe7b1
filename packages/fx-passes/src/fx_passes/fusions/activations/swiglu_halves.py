"""The opening of fusions that begin with `npu_swiglu`: pattern and condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.rule import Pattern


def _activated(x: Tensor, dim: int) -> Linked:
    return torch.ops.npu.npu_swiglu(x, dim), {}


def swiglu_pattern(closing: Link) -> Pattern:
    """Return the pattern of `npu_swiglu` of `x` along `dim`, and a last link.

    Args:
        closing: Takes the activated values first.
    """
    return combine(_activated, closing)


def halves_problem(match: Match) -> NoMatch | None:
    """Return why the halves of `x` are not those of its last dimension."""
    x = match.tensor("x")
    if match.bound["dim"] not in {-1, x.dim() - 1}:
        return NoMatch(f"the halves are along dimension {match.bound['dim']} of {x.dim()}")
    return None
