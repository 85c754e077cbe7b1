"""RMSNorm written with powers, means and roots, raised to `npu::npu_rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["raise_rms_norm"]


def _mean_of_squares(wide: Tensor, dims: Sequence[int]) -> Tensor:
    mean: Tensor = torch.ops.aten.mean.dim(wide.pow(2), dims, True)
    return mean


def _scaled_after_cast(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Normalise in float32, round, multiply: Llama, Qwen, Mistral."""
    wide = x.to(torch.float32)
    mean = _mean_of_squares(wide, dims)
    return {"y": weight * (wide * torch.rsqrt(mean + epsilon)).to(dtype)}


def _scaled_before_cast(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Normalise and multiply in float32, round once: OLMo, Gemma."""
    wide = x.to(torch.float32)
    mean = _mean_of_squares(wide, dims)
    scaled = label(wide * torch.rsqrt(mean + epsilon) * weight, "wide")
    return {"y": scaled.to(dtype)}


def _scaled_before_type_as(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int]
) -> dict[str, Tensor]:
    """The same, with the rounding spelt `type_as`: Gemma."""
    wide = x.to(torch.float32)
    mean = _mean_of_squares(wide, dims)
    scaled = label(wide * torch.rsqrt(mean + epsilon) * weight, "wide")
    return {"y": scaled.type_as(x)}


def _aten_scaled_after_cast(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """As AOTAutograd spells the casts."""
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    wide = cast(x, dtype=torch.float32)
    mean = _mean_of_squares(wide, dims)
    return {"y": weight * cast(wide * torch.rsqrt(mean + epsilon), dtype=dtype)}


def _aten_scaled_before_cast(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """As AOTAutograd spells the casts."""
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    wide = cast(x, dtype=torch.float32)
    mean = _mean_of_squares(wide, dims)
    scaled = label(wide * torch.rsqrt(mean + epsilon) * weight, "wide")
    return {"y": cast(scaled, dtype=dtype)}


def _without_casts(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int]
) -> dict[str, Tensor]:
    """A model whose casts are gone, as those of a float32 model in ATen."""
    mean = _mean_of_squares(x, dims)
    return {"y": weight * (x * torch.rsqrt(mean + epsilon))}


def _epsilon_after_root(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """What the check refuses."""
    wide = x.to(torch.float32)
    root = label(torch.rsqrt(_mean_of_squares(wide, dims)) + epsilon, "late_epsilon")
    return {"y": weight * (wide * root).to(dtype)}


def _epsilon_after_square_root(
    x: Tensor, weight: Tensor, epsilon: float, dims: Sequence[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """What the check refuses."""
    wide = x.to(torch.float32)
    root = label(torch.sqrt(_mean_of_squares(wide, dims)) + epsilon, "late_epsilon")
    return {"y": weight * (wide / root).to(dtype)}


_REQUIREMENTS = (
    Requirement.on_npu("x"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16, torch.float32),
    Requirement.dtype_in("weight", torch.bfloat16, torch.float16, torch.float32),
    Requirement.same_dtype("x", "y"),
    Requirement.rank("weight", 1),
)


def _check(match: Match) -> NoMatch | None:
    late = match.labels.get("late_epsilon")
    if late is not None:
        return NoMatch("epsilon is added to the root; the kernel adds it to the mean", (late,))
    return first_unmet(match, *_REQUIREMENTS) or _shape_problem(match)


def _shape_problem(match: Match) -> NoMatch | None:
    tensors = match.tensors("x", "weight")
    if isinstance(tensors, NoMatch):
        return tensors
    x, weight = tensors
    dims = match.bound["dims"]
    listed = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if listed not in ([-1], [x.dim() - 1]):
        return NoMatch(f"the mean is over the dimensions {listed} of {x.dim()}, not the last one")
    if not sizes_equal(weight.shape[0], x.shape[-1]):
        return NoMatch(
            f"`weight` has {weight.shape[0]} elements and the last dimension {x.shape[-1]}"
        )
    if "wide" not in match.labels and x.dtype == torch.float32 != weight.dtype:
        return NoMatch(f"`weight` has dtype {weight.dtype} and `x` {x.dtype}")
    return _epsilon_problem(match) or layout_problem(match, "y")


def _epsilon_problem(match: Match) -> NoMatch | None:
    epsilon = match.bound["epsilon"]
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        return NoMatch(f"epsilon is {epsilon}; the kernel takes a number")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    tensors = match.tensors("x", "weight", "y")
    if isinstance(tensors, NoMatch):
        raise RuleError("building npu_rms_norm: the match was not checked")
    x, weight, y = tensors
    gamma = match.bound["weight"]
    if "wide" in match.labels and weight.dtype != torch.float32:
        # The product is one in float32: the kernel makes it one where gamma is float32.
        gamma = build.call("aten::_to_copy", gamma, dtype=torch.float32)
    rstd = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    fused = build.call(
        "npu::npu_rms_norm",
        match.bound["x"],
        gamma,
        match.bound["epsilon"],
        val=(dense_like(y), rstd),
    )
    return build.elements(fused, {"y": 0})


def raise_rms_norm() -> tuple[Rule, ...]:
    """Return the rule `x * rsqrt(mean(x ** 2) + eps)`, scaled, to `npu_rms_norm`.

    Any eps, both orders of the products, models in float32, bfloat16 and float16:

    - rounded before the product with the weight (Llama, Qwen2, Qwen3, Mistral): the weight has the
      dtype of x, for which the kernel rounds at the same place;
    - rounded after it (Gemma, OLMo): the kernel gets a float32 weight, for which it multiplies in
      float32. For Gemma that is `1 + weight.float()`, which stays in the graph as the model spells
      it: one operator on one row. `npu_gemma_rms_norm` is not used; its kernel adds the offset in
      the weight's dtype and exists on fewer devices.

    Source of the dtype table: aclnnRmsNorm takes float32, float16 and bfloat16, and gamma of the
    same type or float32. Sums may be added up in another order: the numerics are `rounding`.
    """
    rule = Rule(
        name="raise_rms_norm",
        patterns=(
            _scaled_after_cast,
            _scaled_before_cast,
            _scaled_before_type_as,
            _aten_scaled_after_cast,
            _aten_scaled_before_cast,
            _without_casts,
            _epsilon_after_root,
            _epsilon_after_square_root,
        ),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rms_norm",),
        numerics="rounding",
    )
    return (rule,)
