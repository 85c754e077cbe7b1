"""Normalisation by the root of the mean square, in torch's elementwise operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, is_number, on_npu, same_dtype, same_shape
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Pattern


_SQUARES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x.pow(2),
    torch.ops.aten.square,
    lambda x: x * x,
)
_ROOTS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, mean: x * torch.rsqrt(mean),
    lambda x, mean: x * mean.pow(-0.5),
    lambda x, mean: x * torch.reciprocal(torch.sqrt(mean)),
    # As ATen spells `1 / sqrt(mean)`.
    lambda x, mean: x * (torch.reciprocal(torch.sqrt(mean)) * 1),
    lambda x, mean: x / torch.sqrt(mean),
    lambda x, mean: x / mean.pow(0.5),
)


def _spelling(
    square: Callable[[Tensor], Tensor], root: Callable[[Tensor, Tensor], Tensor]
) -> Pattern:
    """Return the pattern of one way to square and one to divide by the root."""

    def normed(x: Tensor, dims: Sequence[int], epsilon: float) -> dict[str, Tensor]:
        return {"y": root(x, torch.ops.aten.mean.dim(square(x), dims, True) + epsilon)}

    return normed


def _rounded_root(
    x: Tensor, dims: Sequence[int], epsilon: float, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The root in float32 of values that stay in their dtype: NanoChat."""
    wide = x.to(torch.float32)
    mean = torch.ops.aten.mean.dim(torch.ops.aten.square(wide), dims, True)
    return {"y": x * torch.rsqrt(mean + epsilon).to(dtype)}


def _wide_root(x: Tensor, dims: Sequence[int], epsilon: float) -> dict[str, Tensor]:
    """A root in float32, which makes the product one in float32: CPM-Ant."""
    wide = label(x.to(torch.float32), "dynamo")
    mean = torch.ops.aten.mean.dim(wide.pow(2), dims, True)
    return {"y": label(x * torch.rsqrt(mean + epsilon), "wide")}


def _aten_wide_root(x: Tensor, dims: Sequence[int], epsilon: float) -> dict[str, Tensor]:
    """As AOTAutograd spells the cast."""
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    mean = torch.ops.aten.mean.dim(cast(x, dtype=torch.float32).pow(2), dims, True)
    return {"y": label(x * torch.rsqrt(mean + epsilon), "wide")}


def _late_epsilon_rsqrt(x: Tensor, dims: Sequence[int], epsilon: float) -> dict[str, Tensor]:
    """A form that the check rejects."""
    root = torch.rsqrt(torch.ops.aten.mean.dim(x.pow(2), dims, True))
    return {"y": x * label(root + epsilon, "late_epsilon")}


def _late_epsilon_sqrt(x: Tensor, dims: Sequence[int], epsilon: float) -> dict[str, Tensor]:
    """A form that the check rejects."""
    root = torch.sqrt(torch.ops.aten.mean.dim(x.pow(2), dims, True))
    return {"y": x / label(root + epsilon, "late_epsilon")}


def _check(match: Match) -> NoMatch | None:
    late = match.labels.get("late_epsilon")
    if late is not None:
        return NoMatch("epsilon is added to the root; the kernel adds it to the mean", (late,))
    wide = "wide" in match.labels
    return (
        on_npu(match, "x")
        or dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or same_shape(match, "x", "y")
        or (dtype_in(match, "y", torch.float32) if wide else same_dtype(match, "x", "y"))
        or _numbers_problem(match)
    )


def _numbers_problem(match: Match) -> NoMatch | None:
    x = match.tensor("x")
    dims, epsilon = match.bound["dims"], match.bound["epsilon"]
    listed = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if listed not in ([-1], [x.dim() - 1]):
        return NoMatch(f"the mean is over the dimensions {listed} of {x.dim()}, not the last one")
    size: object = x.shape[-1]
    if not isinstance(size, int):
        return NoMatch(f"the last dimension is {size}; it must be a number")
    if not is_number(epsilon):
        return NoMatch(f"epsilon is {epsilon}; the kernel takes a number")
    return layout_problem(match, "y")


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    x, y = match.tensor("x"), match.tensor("y")
    source, epsilon = match.bound["x"], match.bound["epsilon"]
    if x.dtype != y.dtype:
        # Spelt as the casts around it, so that `raise_rms_norm` finds a pattern.
        cast = "aten::to.dtype" if "dynamo" in match.labels else "aten::_to_copy"
        source = build.call(cast, source, dtype=y.dtype)
    normed = build.call("aten::rms_norm", source, [x.shape[-1]], None, epsilon, val=dense_like(y))
    return {"y": normed}


def spelt_rms_norm() -> Rule:
    """Return the rule `x * rsqrt(mean(x ** 2) + eps)` to `aten::rms_norm` without a weight.

    Any eps; squares as `pow`, `square` or a product; the root as `rsqrt`, powers, a reciprocal or a
    division; in any floating-point dtype of 16 or 32 bits. `raise_rms_norm` rewrites it to a
    kernel, with the weight and the casts around it, and must come after this rule.

    If x has 16 bits, the torch operators round after each step, the kernel once: the numerics
    are `rounding`.
    """
    return Rule(
        name="spelt_rms_norm",
        patterns=(
            *(_spelling(square, root) for square in _SQUARES for root in _ROOTS),
            _rounded_root,
            _wide_root,
            _aten_wide_root,
            _late_epsilon_rsqrt,
            _late_epsilon_sqrt,
        ),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rms_norm",),
        numerics="rounding",
    )
