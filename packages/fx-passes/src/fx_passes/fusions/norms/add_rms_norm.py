"""Residual add followed by RMSNorm, fused into `npu::npu_add_rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, rank_is, same_dtype, same_shape
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _pattern(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> dict[str, Tensor]:
    total = x + residual
    norm = label(torch.ops.npu.npu_rms_norm(total, weight, epsilon), "norm")
    return {"normed": norm[0], "rstd": norm[1], "total": total}


def _check(match: Match) -> NoMatch | None:
    return (
        same_shape(match, "x", "residual")
        or same_dtype(match, "x", "residual", "weight")
        or dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or rank_is(match, 1, "weight")
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    norm = match.value("norm")
    known = (*norm, match.value("total")) if isinstance(norm, (tuple, list)) else None
    arguments = match.arguments("x", "residual", "weight", "epsilon")
    fused = build.call("npu::npu_add_rms_norm", *arguments, val=known)
    return build.elements(fused, {"normed": 0, "rstd": 1, "total": 2})


def fuse_add_rms_norm() -> Rule:
    """Return the rule `x + residual; npu_rms_norm(sum, weight, eps)` to `npu_add_rms_norm`.

    Any eps, both orders of the addition, with and without further use of the sum and of rstd.
    Source of the dtype table: aclnnAddRmsNorm takes x1, x2 and gamma of one type out of float32,
    float16 and bfloat16; x1 and x2 have the same shape, it does not broadcast. Kernels may keep the
    sum in float32 where the two operators round it once more, so the numerics are `rounding`.
    """
    return Rule(
        name="fuse_add_rms_norm",
        patterns=(_pattern,),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rms_norm", "npu::npu_add_rms_norm"),
        numerics="rounding",
    )
