"""Residual add + RMSNorm + two static quantisations of it, in `npu::npu_add_rms_norm_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.norms.add_rms_norm_quant import (
    build_static_quant,
    second_quant_problem,
    static_quant_problem,
)
from fx_passes.fusions.norms.residual_norm import residual_norm_patterns
from fx_passes.fusions.quantized import quantize_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _quantized_twice(
    normed: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    scale2: Tensor,
    offset2: Tensor | None,
    dtype: object,
    axis: int,
    div_mode: bool,
) -> Linked:
    quantize = torch.ops.npu.npu_quantize
    first = quantize(normed, scale, offset, dtype, axis, div_mode)
    second = quantize(normed, scale2, offset2, dtype, axis, div_mode)
    return None, {"quantized": first, "second": second}


def _check(match: Match) -> NoMatch | None:
    return (
        static_quant_problem(match) or second_quant_problem(match) or quantize_problem(match, "x")
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_static_quant(match, build, match.tensor("quantized"), match.tensor("second"))
    return build.elements(fused, {"quantized": 0, "second": 1, "total": 2})


def fuse_add_rms_norm_two_quants() -> Rule:
    """Return the rule residual add + RMSNorm + two `npu_quantize` to `npu_add_rms_norm_quant`.

    As attention with latent heads (MLA) writes it: two projections of one norm, each with a scale
    and an offset, or none, of its own, and one `div_mode`, axis and dtype. Else as
    `fuse_add_rms_norm_quant`; aclnnAddRmsNormQuantV2 takes the second scale and offset as it takes
    the first.
    """
    return Rule(
        name="fuse_add_rms_norm_two_quants",
        patterns=residual_norm_patterns(_quantized_twice),
        check=_check,
        rewrite=_rewrite,
        operators=(
            "npu::npu_rms_norm",
            "npu::npu_add_rms_norm",
            "npu::npu_quantize",
            "npu::npu_add_rms_norm_quant",
        ),
        numerics="rounding",
    )
