"""RMSNorm, of a sum or not, + block-wise (MX) quantisation, fused into one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.norms.residual_norm import (
    NORMS,
    norm_patterns,
    norm_problem,
    residual_norm_patterns,
    sum_value,
)
from fx_passes.fusions.quantized import MX_QUANTIZE, mx_quant_problem, mx_quantized
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


KERNEL = "npu::npu_rms_norm_dynamic_mx_quant"
"""What does both for a norm without a residual."""
ADD_KERNEL = "npu::npu_add_rms_norm_dynamic_mx_quant"
"""What does both for a norm of a sum, which it returns between values and scales."""


def norm_mx_problem(match: Match) -> NoMatch | None:
    """Return why no kernel takes a match of a norm, of a sum or not, and MX quantisation."""
    return norm_problem(match) or mx_quant_problem(match)


def build_norm_mx(match: Match, build: GraphBuilder, quantized: Tensor, scale: Tensor) -> Node:
    """Return the call of `ADD_KERNEL` where the match has a residual, else of `KERNEL`."""
    bound, x = match.bound, match.tensor("x")
    adds = "residual" in bound
    deviations = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    total = (sum_value(match),) if adds else ()
    return build.call(
        ADD_KERNEL if adds else KERNEL,
        *match.arguments("x", *(("residual",) if adds else ()), "weight"),
        beta=bound.get("beta"),
        epsilon=bound["epsilon"],
        scale_alg=bound["algorithm"],
        round_mode=bound["mode"],
        dst_type=bound["dtype"],
        val=(quantized, *total, scale, deviations),
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_norm_mx(match, build, *match.results("quant"))
    results = (
        ("quantized", "total", "scale") if "residual" in match.bound else ("quantized", "scale")
    )
    return build.elements(fused, {name: position for position, name in enumerate(results)})


def fuse_add_rms_norm_dynamic_mx_quant() -> Rule:
    """Return the rule residual add + RMSNorm + `npu_dynamic_mx_quant` to one operator.

    Any eps, rounding mode and result dtype (float8 and float4), blocks of 32 along the last
    dimension; with and without a bias added to the norm and use of the sum. Only Ascend950 has the
    kernel, aclnnAddRmsNormDynamicMxQuant, and only it has `npu_dynamic_mx_quant`, so a graph that
    could be rewritten is for such a device. The kernel quantises the norm before it is rounded:
    the numerics are `rounding`.
    """
    return Rule(
        name="fuse_add_rms_norm_dynamic_mx_quant",
        patterns=residual_norm_patterns(mx_quantized),
        check=norm_mx_problem,
        rewrite=_rewrite,
        operators=(*NORMS, MX_QUANTIZE, ADD_KERNEL),
        numerics="rounding",
    )


def fuse_rms_norm_dynamic_mx_quant() -> Rule:
    """Return the rule `npu_rms_norm` + `npu_dynamic_mx_quant` to one operator.

    For norms without a residual before them; else as `fuse_add_rms_norm_dynamic_mx_quant`.
    """
    return Rule(
        name="fuse_rms_norm_dynamic_mx_quant",
        patterns=norm_patterns(mx_quantized),
        check=norm_mx_problem,
        rewrite=_rewrite,
        operators=("npu::npu_rms_norm", MX_QUANTIZE, KERNEL),
        numerics="rounding",
    )
