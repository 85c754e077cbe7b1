"""Residual add + RMSNorm + per-token quantisation, in `npu::npu_add_rms_norm_dynamic_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.fusions.norms.residual_norm import (
    NORMS,
    flattened_rows,
    norm_problem,
    regroup,
    reshaped_rows,
    residual_norm_patterns,
    rows_problem,
    sum_value,
)
from fx_passes.fusions.quantized import dynamic_dtype_problem, row_quantized
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import same_dtype, same_shape
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


def dynamic_quant_problem(match: Match) -> NoMatch | None:
    """Return why the kernel takes no such match of residual add, norm and dynamic quantisation."""
    smooth = () if match.bound["smooth"] is None else ("smooth",)
    unmet = (
        dynamic_dtype_problem(match)
        or norm_problem(match)
        or same_shape(match, "weight", *smooth)
        or same_dtype(match, "weight", *smooth)
    )
    if unmet is not None:
        return unmet
    # The rewrite needs their fake values.
    match.results("quant")
    rank = match.tensor("x").dim()
    if rank < 2:
        return NoMatch(f"`x` has {rank} dimension; the kernel takes 2 to 8")
    return None


def _check(match: Match) -> NoMatch | None:
    return dynamic_quant_problem(match) or rows_problem(match)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    quantized, scale = match.results("quant")
    if "rows" not in match.labels:
        fused = build_dynamic_quant(match, build, quantized, scale)
        return build.elements(fused, {"quantized": 0, "total": 2, "scale": 3})
    shape = match.tensor("x").shape
    whole = quantized.new_empty(shape), scale.new_empty(shape[:-1])
    fused = build_dynamic_quant(match, build, *whole)
    found = build.elements(fused, {"total": 2})
    if "quantized" in match.needed:
        element = build.element(fused, 0)
        found["quantized"] = regroup(match, build, element, val=quantized)
    if "scale" in match.needed:
        element = build.element(fused, 3)
        found["scale"] = regroup(match, build, element, val=scale, one_each=True)
    return found


def build_dynamic_quant(
    match: Match, build: GraphBuilder, quantized: Tensor, scale: Tensor
) -> Node:
    """Return the call of the kernel for a match that `dynamic_quant_problem` has nothing against.

    Its results 0, 2 and 3 are the quantised values, the sum and the scales.
    """
    bound = match.bound
    return build.call(
        "npu::npu_add_rms_norm_dynamic_quant",
        *match.arguments("x", "residual", "weight"),
        smooth_scale1=bound["smooth"],
        beta=bound.get("beta"),
        epsilon=bound["epsilon"],
        output_mask=[True, False],
        # Results of the masked half are empty.
        val=(quantized, quantized.new_empty(0), sum_value(match), scale, scale.new_empty(0)),
    )


def fuse_add_rms_norm_dynamic_quant() -> Rule:
    """Return the rule residual add + RMSNorm + `npu_dynamic_quant` to one operator.

    Any eps, with and without a bias added to the norm, with and without smooth scales, with and
    without use of the sum; after `npu_add_rms_norm` or after an addition and `npu_rms_norm`. A view
    between norm and quantisation that keeps the rows is done to the results instead. Only int8, per
    token, without groups. Source of the dtype table: aclnnAddRmsNormDynamicQuantV2 takes
    float16 or bfloat16 of 2 to 8 dimensions, smooth scales and bias like gamma. The kernel
    quantises the norm as it is before rounding, so int8 values may differ by one: the numerics are
    `rounding`.
    """
    return Rule(
        name="fuse_add_rms_norm_dynamic_quant",
        patterns=(
            *residual_norm_patterns(row_quantized),
            *residual_norm_patterns(reshaped_rows, row_quantized),
            *residual_norm_patterns(flattened_rows, row_quantized),
        ),
        check=_check,
        rewrite=_rewrite,
        operators=(*NORMS, "npu::npu_dynamic_quant", "npu::npu_add_rms_norm_dynamic_quant"),
        numerics="rounding",
    )
