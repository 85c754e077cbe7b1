"""SwiGLU + block-wise (MX) quantisation, fused into `npu::npu_swiglu_mx_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.swiglu_halves import halves_problem, swiglu_pattern
from fx_passes.fusions.mx_quantized import (
    MX_QUANTIZE,
    mx_quant_problem,
    mx_quantized,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


def _check(match: Match) -> NoMatch | None:
    unmet = first_unmet(match, Requirement.dtype_in("x", torch.bfloat16, torch.float16))
    return unmet or mx_quant_problem(match) or halves_problem(match) or _width_problem(match)


def _width_problem(match: Match) -> NoMatch | None:
    x = match.tensor("x")
    if not sizes_equal(x.shape[-1] % 2, 0) or x.dim() < 2:
        return NoMatch(f"`x` has the shape {list(x.shape)}; the kernel takes 2 dimensions or more")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    fused = build.call(
        "npu::npu_swiglu_mx_quant",
        bound["x"],
        activate_left=True,
        dst_type=bound["dtype"],
        round_mode=bound["mode"],
        scale_alg=bound["algorithm"],
        val=match.results("quant"),
    )
    return build.elements(fused, {"quantized": 0, "scale": 1})


def fuse_swiglu_mx_quant() -> Rule:
    """Return the rule `npu_swiglu` + `npu_dynamic_mx_quant` to `npu_swiglu_mx_quant`.

    Halves and blocks of 32 along the last dimension, any rounding mode and result dtype. Only
    Ascend950 has either kernel. The fused one quantises before rounding: the numerics are
    `rounding`.
    """
    return Rule(
        name="fuse_swiglu_mx_quant",
        patterns=(swiglu_pattern(mx_quantized),),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_swiglu", MX_QUANTIZE, "npu::npu_swiglu_mx_quant"),
        numerics="rounding",
    )
