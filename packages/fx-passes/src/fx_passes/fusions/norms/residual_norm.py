"""The opening of fusions that begin with a residual add and RMSNorm: patterns and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.match import Match, NoMatch

__all__ = [
    "RESIDUAL_NORMS",
    "ResidualNorm",
    "norm_problem",
    "residual_norm_problem",
    "sum_value",
]

ResidualNorm = Callable[..., "tuple[Tensor, Tensor]"]
"""Of `(x, residual, weight, epsilon)`, in a pattern: the normalised sum, and the sum."""


def _joined(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """As engines for NPUs write it."""
    added = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "total_source")
    return added[0], added[2]


def _separate(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """As an addition and a norm."""
    total = label(x + residual, "total_source")
    return torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0], total


RESIDUAL_NORMS: tuple[ResidualNorm, ...] = (_joined, _separate)

_HALVES = (torch.bfloat16, torch.float16)
# npu_add_rms_norm does not broadcast either, so this concerns additions only.
_ADDITION = (Requirement.same_shape("x", "residual"), Requirement.same_dtype("x", "residual"))
_NORM = (
    Requirement.same_dtype("x", "weight"),
    Requirement.dtype_in("x", *_HALVES),
    Requirement.rank("weight", 1),
)
_BIAS = (Requirement.same_shape("weight", "beta"), Requirement.same_dtype("weight", "beta"))


def norm_problem(match: Match) -> NoMatch | None:
    """Return why a norm of `x` by `weight`, with or without `beta` behind it, is not fused.

    The table of all fused kernels with quantisation: bfloat16 or float16 throughout, a weight of
    one dimension, a bias like it.
    """
    bias = _BIAS if match.bound.get("beta") is not None else ()
    return first_unmet(match, *_NORM, *bias)


def residual_norm_problem(match: Match) -> NoMatch | None:
    """Return why a residual add and norm of one of `RESIDUAL_NORMS` is not fused further."""
    addition = _ADDITION if isinstance(match.value("total_source"), torch.Tensor) else ()
    return first_unmet(match, *addition) or norm_problem(match)


def sum_value(match: Match) -> object:
    """Return the fake value of the sum, which a match may hold though the graph does not use it."""
    source = match.value("total_source")
    return source[2] if isinstance(source, (tuple, list)) else source
