"""Residual add + RMSNorm + per-token quantisation, in `npu::npu_add_rms_norm_dynamic_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.fusions.requirements import Requirement, first_unmet
from fx_passes.match import Match, NoMatch
from fx_passes.pattern import label
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.graph_builder import GraphBuilder

__all__ = ["fuse_add_rms_norm_dynamic_quant"]

# npu_add_rms_norm does not broadcast either, so this concerns additions only.
_ADDITION = (Requirement.same_shape("x", "residual"),)
_REQUIREMENTS = (
    Requirement.same_dtype("x", "residual", "weight"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16),
    Requirement.rank("weight", 1),
)
_SMOOTH_REQUIREMENTS = (
    Requirement.same_shape("weight", "smooth"),
    Requirement.same_dtype("weight", "smooth"),
)


def _separate(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float, smooth: Tensor | None
) -> dict[str, Tensor]:
    total = label(x + residual, "total_source")
    normed = torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0]
    quant = label(torch.ops.npu.npu_dynamic_quant(normed, smooth_scales=smooth), "quant")
    return {"quantized": quant[0], "scale": quant[1], "total": total}


def _joined(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float, smooth: Tensor | None
) -> dict[str, Tensor]:
    added = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "total_source")
    quant = label(torch.ops.npu.npu_dynamic_quant(added[0], smooth_scales=smooth), "quant")
    return {"quantized": quant[0], "scale": quant[1], "total": added[2]}


def _check(match: Match) -> NoMatch | None:
    smooth = () if match.bound["smooth"] is None else _SMOOTH_REQUIREMENTS
    addition = _ADDITION if isinstance(match.value("total_source"), torch.Tensor) else ()
    unmet = first_unmet(match, *addition, *_REQUIREMENTS, *smooth)
    if unmet is not None:
        return unmet
    x = match.value("x")
    if not isinstance(match.value("quant"), (tuple, list)):
        return NoMatch("no tensor metadata for the quantised values")
    if isinstance(x, torch.Tensor) and x.dim() < 2:
        return NoMatch(f"`x` has {x.dim()} dimension; the kernel takes 2 to 8")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, source, quant = match.bound, match.value("total_source"), match.value("quant")
    if not isinstance(quant, (tuple, list)):
        raise RuleError(
            "building npu_add_rms_norm_dynamic_quant: npu_dynamic_quant has no metadata"
        )
    quantized, scale = quant
    total = source[2] if isinstance(source, (tuple, list)) else source
    fused = build.call(
        "npu::npu_add_rms_norm_dynamic_quant",
        bound["x"],
        bound["residual"],
        bound["weight"],
        smooth_scale1=bound["smooth"],
        epsilon=bound["epsilon"],
        output_mask=[True, False],
        # Results of the masked half are empty.
        val=(quantized, quantized.new_empty(0), total, scale, scale.new_empty(0)),
    )
    return build.elements(fused, {"quantized": 0, "total": 2, "scale": 3})


def fuse_add_rms_norm_dynamic_quant() -> Rule:
    """Return the rule residual add + RMSNorm + `npu_dynamic_quant` to one operator.

    Any eps, with and without smooth scales, with and without use of the sum; after
    `npu_add_rms_norm` or after an addition and `npu_rms_norm`. Only int8, per token, without
    groups. Source of the dtype table: aclnnAddRmsNormDynamicQuantV2 takes float16 or bfloat16 of 2
    to 8 dimensions, smooth scales like gamma. The kernel need not round the norm to the tensor's
    dtype before it quantises: the numerics are `rounding`.
    """
    return Rule(
        name="fuse_add_rms_norm_dynamic_quant",
        patterns=(_joined, _separate),
        check=_check,
        rewrite=_rewrite,
        operators=(
            "npu::npu_rms_norm",
            "npu::npu_add_rms_norm",
            "npu::npu_dynamic_quant",
            "npu::npu_add_rms_norm_dynamic_quant",
        ),
        numerics="rounding",
    )
