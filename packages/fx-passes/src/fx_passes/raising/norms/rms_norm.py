"""`aten::rms_norm`, with the casts and the weight around it, raised to `npu::npu_rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of
from fx_passes.matching.combined_pattern import calling, combine, result
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import (
    dtype_in,
    is_number,
    on_npu,
    rank_is,
    same_dtype,
    same_shape,
    sizes_equal,
)
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# What torch takes where `eps` is None: the norm is computed in float32 whatever x is.
_DEFAULT_EPSILON = torch.finfo(torch.float32).eps


def _wide(x: Tensor) -> Linked:
    return x.to(torch.float32), {}


def _aten_wide(x: Tensor) -> Linked:
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    return cast(x, dtype=torch.float32), {}


def _norm(x: Tensor, shape: Sequence[int], epsilon: float) -> Linked:
    return label(torch.ops.aten.rms_norm(x, shape, None, epsilon), "normed"), {}


def _weighted_wide(normed: Tensor, weight: Tensor) -> Linked:
    return label(normed * weight, "wide"), {}


def _aten_to(values: Tensor, dtype: torch.dtype, layout: object, device: object) -> Linked:
    """As AOTAutograd spells a cast."""
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    return cast(values, dtype=dtype, layout=layout, device=device), {}


def _operator(
    x: Tensor, weight: Tensor | None, shape: Sequence[int], epsilon: float | None
) -> dict[str, Tensor]:
    """The call made by `torch.nn.RMSNorm`, which also remains of the other forms."""
    return {"y": label(torch.ops.aten.rms_norm(x, shape, weight, epsilon), "wide")}


_to = calling(torch.ops.aten.to.dtype, dtype="dtype")
_type_as = calling(torch.ops.aten.type_as.default, like="Tensor")
_weighted = calling(torch.ops.aten.mul.Tensor, weight="Tensor")
_CASTS = ((_wide, _to), (_wide, _type_as), (_aten_wide, _aten_to))
_PATTERNS = (
    *(
        combine(wide, _norm, *ending, result)
        for wide, cast in _CASTS
        # Rounded before the product (Llama, Qwen, Mistral), and after it (OLMo, Gemma).
        for ending in ((cast, _weighted), (_weighted_wide, cast))
    ),
    # Without a weight: norms of queries and keys.
    *(combine(wide, _norm, cast, result) for wide, cast in _CASTS),
    # Without casts, as in a float32 model in ATen.
    combine(_norm, _weighted, result),
    _operator,
)


_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _check(match: Match) -> NoMatch | None:
    return (
        on_npu(match, "x")
        or dtype_in(match, "x", *_DTYPES)
        or same_dtype(match, "x", "y")
        or same_shape(match, "x", "y")
        or _shape_problem(match)
        or _weight_problem(match)
        or _memory_problem(match)
        or layout_problem(match, "y")
    )


def _shape_problem(match: Match) -> NoMatch | None:
    shape, epsilon = match.bound["shape"], match.bound["epsilon"]
    if not isinstance(shape, (list, tuple)) or len(shape) != 1 or type(shape[0]) is not int:
        return NoMatch(f"it normalises over the dimensions {shape}; expected one, of a known size")
    if epsilon is not None and not is_number(epsilon):
        return NoMatch(f"epsilon is {epsilon}; the kernel takes a number")
    return None


def _weight_problem(match: Match) -> NoMatch | None:
    if match.bound.get("weight") is None:
        return None
    unmet = dtype_in(match, "weight", *_DTYPES) or rank_is(match, 1, "weight")
    if unmet is not None:
        return unmet
    x, weight = match.tensor("x"), match.tensor("weight")
    if not sizes_equal(weight.shape[0], x.shape[-1]):
        return NoMatch(
            f"`weight` has {weight.shape[0]} elements and the last dimension {x.shape[-1]}"
        )
    if "wide" not in match.labels and x.dtype != weight.dtype:
        return NoMatch(f"`weight` has dtype {weight.dtype} and `x` {x.dtype}")
    return None


def _memory_problem(match: Match) -> NoMatch | None:
    layout, there = match.bound.get("layout"), match.tensor("x").device
    if layout not in {None, torch.strided}:
        return NoMatch(f"the result is cast to the layout {layout}; the kernel's is strided")
    device = match.bound.get("device")
    if device not in {None, there}:
        return NoMatch(f"the result is moved to {device}; the kernel leaves it on {there}")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    x, y = match.tensor("x"), match.tensor("y")
    epsilon = match.bound["epsilon"]
    fused = build.call(
        "npu::npu_rms_norm",
        match.bound["x"],
        _gamma(match, build, x),
        _DEFAULT_EPSILON if epsilon is None else epsilon,
        val=(dense_like(y), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)),
    )
    return build.elements(fused, {"y": 0})


def _gamma(match: Match, build: GraphBuilder, x: torch.Tensor) -> Node:
    """Return the weight, in float32 where the product is one in float32."""
    bound = match.bound.get("weight")
    if not isinstance(bound, Node):
        size = [x.shape[-1]]
        ones = x.new_empty(size)
        return build.call("aten::ones", size, dtype=x.dtype, device=x.device, val=ones)
    weight = value_of(bound)
    is_wide = isinstance(weight, torch.Tensor) and weight.dtype == torch.float32
    if "wide" in match.labels and not is_wide:
        return build.call("aten::_to_copy", bound, dtype=torch.float32)
    return bound


def raise_rms_norm() -> Rule:
    """Return the rule `aten::rms_norm`, with casts and a weight around it, to `npu_rms_norm`.

    `torch.nn.RMSNorm` calls this operator, and `spelt_rms_norm` rewrites expanded norms to it. For
    models in float32, bfloat16 and float16:

    - rounded before the product with the weight (Llama, Qwen2, Qwen3, Mistral): the weight has the
      dtype of x, for which the kernel rounds at the same place;
    - rounded after it (Gemma, OLMo, `torch.nn.RMSNorm`): the kernel gets a float32 weight, for
      which it multiplies in float32. For Gemma that is `1 + weight.float()`, which stays in the
      graph: one operator on one row. `npu_gemma_rms_norm` is not used, because its
      kernel adds the offset in the weight's dtype and exists on fewer devices;
    - without a weight (norms of queries and keys): the kernel gets ones, which
      `ShareEqualCallsPass` shares between all norms of a size.

    Source of the dtype table: aclnnRmsNorm accepts float32, float16 and bfloat16, and gamma of the
    same type or float32. Sums may be computed in another order: the numerics are `rounding`.
    """
    return Rule(
        # A cast of the weight, or ones, are made for each norm and then shared.
        accepts_cost=True,
        name="raise_rms_norm",
        patterns=_PATTERNS,
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rms_norm",),
        numerics="rounding",
    )
