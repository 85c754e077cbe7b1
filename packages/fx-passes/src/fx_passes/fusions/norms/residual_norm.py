"""The opening of fusions that begin with RMSNorm, of a sum or not: patterns and conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.rule import Pattern


def _joined(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """As engines for NPUs write it."""
    added = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "total_source")
    return added[0], {"total": added[2]}


def _separate(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Linked:
    """As an addition and a norm."""
    total = label(x + residual, "total_source")
    return torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0], {"total": total}


def _alone(x: Tensor, weight: Tensor, epsilon: float) -> Linked:
    return torch.ops.npu.npu_rms_norm(x, weight, epsilon)[0], {}


def _shifted(normed: Tensor, beta: Tensor) -> Linked:
    return normed + beta, {}


def residual_norm_patterns(*closing: Link) -> tuple[Pattern, ...]:
    """Return the patterns of a residual add, RMSNorm, an optional bias, and further links.

    Their inputs are `x`, `residual`, `weight`, `epsilon`, optionally `beta`, and those of the
    links; the output `total` is the sum, and the label `total_source` is on the node that computes
    it.

    Args:
        closing: The links after the norm; the first parameter of the first one is the norm.
    """
    openings = (
        (opening, *shift) for shift in ((), (_shifted,)) for opening in (_joined, _separate)
    )
    return tuple(combine(*opening, *closing) for opening in openings)


def norm_patterns(closing: Link) -> tuple[Pattern, ...]:
    """Return the same for a norm of `x` alone."""
    return combine(_alone, closing), combine(_alone, _shifted, closing)


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
    """Return why a norm of `x` by `weight`, with or without `beta` after it, is not fused.

    The table of all fused kernels with quantisation: bfloat16 or float16 throughout, a weight of
    one dimension, a bias like it.
    """
    bias = _BIAS if match.bound.get("beta") is not None else ()
    return first_unmet(match, *_NORM, *bias)


def residual_norm_problem(match: Match) -> NoMatch | None:
    """Return why a residual add and norm of `residual_norm_patterns` is not fused further."""
    addition = _ADDITION if isinstance(match.value("total_source"), torch.Tensor) else ()
    return first_unmet(match, *addition) or norm_problem(match)


def sum_value(match: Match) -> object:
    """Return the fake value of the sum, which a match may hold though the graph does not use it."""
    source = match.value("total_source")
    return source[2] if isinstance(source, (tuple, list)) else source
