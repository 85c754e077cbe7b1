"""RMSNorm, of a sum or not, + block-wise (MX) quantisation, fused into one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes.fusions.mx_quantized import (
    MX_QUANTIZE,
    mx_quant_problem,
    mx_quantized,
)
from fx_passes.fusions.norms.residual_norm import (
    norm_patterns,
    norm_problem,
    residual_norm_patterns,
    residual_norm_problem,
    sum_value,
)
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


def add_norm_mx_problem(match: Match) -> NoMatch | None:
    """Return why no kernel takes a match of residual add, norm and MX quantisation."""
    return residual_norm_problem(match) or mx_quant_problem(match)


def norm_mx_problem(match: Match) -> NoMatch | None:
    """Return why no kernel takes a match of a norm and MX quantisation."""
    return norm_problem(match) or mx_quant_problem(match)


def _deviations(match: Match) -> Tensor:
    """Return the fake value of the reciprocal standard deviations, which the kernels return too."""
    x = match.tensor("x")
    return x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


def _settings(match: Match) -> dict[str, Any]:
    """Return the arguments that both kernels take by the same names."""
    bound = match.bound
    return {
        "beta": bound.get("beta"),
        "epsilon": bound["epsilon"],
        "scale_alg": bound["algorithm"],
        "round_mode": bound["mode"],
        "dst_type": bound["dtype"],
    }


def _rewrite_add_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_add_norm_mx(match, build, *match.results("quant"))
    return build.elements(fused, {"quantized": 0, "total": 1, "scale": 2})


def build_add_norm_mx(match: Match, build: GraphBuilder, quantized: Tensor, scale: Tensor) -> Node:
    """Return the call whose results 0, 1 and 2 are the quantised values, the sum and the scales.

    Args:
        match: A match that `add_norm_mx_problem` has nothing against.
        build: The builder of the rewrite.
        quantized: The fake value of the quantised values.
        scale: That of the scales.
    """
    bound = match.bound
    return build.call(
        "npu::npu_add_rms_norm_dynamic_mx_quant",
        bound["x"],
        bound["residual"],
        bound["weight"],
        **_settings(match),
        val=(quantized, sum_value(match), scale, _deviations(match)),
    )


def _rewrite_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_norm_mx(match, build, *match.results("quant"))
    return build.elements(fused, {"quantized": 0, "scale": 1})


def build_norm_mx(match: Match, build: GraphBuilder, quantized: Tensor, scale: Tensor) -> Node:
    """Return the call whose results 0 and 1 are the quantised values and the scales.

    Args:
        match: A match that `norm_mx_problem` has nothing against.
        build: The builder of the rewrite.
        quantized: The fake value of the quantised values.
        scale: That of the scales.
    """
    bound = match.bound
    return build.call(
        "npu::npu_rms_norm_dynamic_mx_quant",
        bound["x"],
        bound["weight"],
        **_settings(match),
        val=(quantized, scale, _deviations(match)),
    )


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
        check=add_norm_mx_problem,
        rewrite=_rewrite_add_norm,
        operators=(
            "npu::npu_rms_norm",
            "npu::npu_add_rms_norm",
            MX_QUANTIZE,
            "npu::npu_add_rms_norm_dynamic_mx_quant",
        ),
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
        rewrite=_rewrite_norm,
        operators=("npu::npu_rms_norm", MX_QUANTIZE, "npu::npu_rms_norm_dynamic_mx_quant"),
        numerics="rounding",
    )
