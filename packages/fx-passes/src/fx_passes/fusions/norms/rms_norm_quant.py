"""RMSNorm + static quantisation without a residual, fused into one of `npu_rms_norm_quant`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.norms.residual_norm import norm_patterns, norm_problem
from fx_passes.fusions.quantized import cast, inverse_scale, quantize_problem, static_quantized
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import dtype_in, rank_is, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


# aclnnRmsNormQuantV3 exists on these alone.
_CHANNEL_SCALES_ON = "Ascend950"


def _check(match: Match, *, soc: str) -> NoMatch | None:
    return (
        norm_problem(match)
        or dtype_in(match, "quantized", torch.int8)
        or rank_is(match, 1, "scale")
        or quantize_problem(match)
        or _scale_problem(match, soc)
        or _offset_problem(match)
    )


def _scale_problem(match: Match, soc: str) -> NoMatch | None:
    x, scale, weight = map(match.tensor, ("x", "scale", "weight"))
    allowed = {x.dtype}
    if not _is_one(scale):
        if not sizes_equal(scale.shape[0], weight.shape[0]):
            return NoMatch(f"`scale` has {scale.shape[0]} elements; the kernels take 1 or gamma's")
        if not soc.startswith(_CHANNEL_SCALES_ON):
            return NoMatch(
                f"a scale for each channel needs npu_rms_norm_quant_v2, which {_CHANNEL_SCALES_ON} "
                f"alone has; the rule was made for {soc or 'every device'}"
            )
        allowed.add(torch.float32)
    if scale.dtype not in allowed:
        return NoMatch(
            f"`scale` has dtype {scale.dtype}, which the kernel does not take for {x.dtype}"
        )
    return None


def _offset_problem(match: Match) -> NoMatch | None:
    offset, scale = match.value("offset"), match.tensor("scale")
    if offset is None:
        return None
    if not isinstance(offset, torch.Tensor) or offset.shape != scale.shape:
        return NoMatch("`offset` has another shape than `scale`")
    if _is_one(scale) and offset.dtype != torch.int8:
        return NoMatch(f"`offset` has dtype {offset.dtype}; the kernel takes torch.int8")
    if not _is_one(scale) and offset.dtype not in {torch.int8, torch.int32, scale.dtype}:
        return NoMatch(f"`offset` has dtype {offset.dtype}, which the kernel does not take")
    return None


def _is_one(scale: Tensor) -> bool:
    return sizes_equal(scale.shape[0], 1)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, quantized = match.bound, match.tensor("quantized")
    if _is_one(match.tensor("scale")):
        return {"quantized": _one_scale(match, build)}
    fused = build.call(
        "npu::npu_rms_norm_quant_v2",
        *match.arguments("x", "weight", "scale"),
        offset=bound["offset"],
        beta=bound.get("beta"),
        epsilon=bound["epsilon"],
        div_mode=bound["div_mode"],
        # Nothing asks for the second result, which is empty where no gradient is wanted.
        val=(quantized, quantized.new_empty(0, dtype=torch.float32)),
    )
    return build.elements(fused, {"quantized": 0})


def _one_scale(match: Match, build: GraphBuilder) -> Node:
    """Build the kernel for one scale, which wants bias and offset: zeros where there is none."""
    bound, weight = match.bound, match.tensor("weight")
    scale, offset, beta = match.node("scale"), bound["offset"], bound.get("beta")
    if bound["div_mode"] is False:
        scale = inverse_scale(scale, build, dtype=weight.dtype)
    if beta is None:
        beta = build.call("aten::zeros_like", bound["weight"], val=weight)
    if offset is None:
        zeros = build.call("aten::zeros_like", scale, val=scale.meta.get("val"))
        offset = cast(zeros, torch.int8, build)
    return build.call(
        "npu::npu_rms_norm_quant",
        *match.arguments("x", "weight"),
        beta,
        scale,
        offset,
        bound["epsilon"],
        val=match.value("quantized"),
    )


def fuse_rms_norm_quant(*, soc: str = "") -> Rule:
    """Return the rule `npu_rms_norm`, a bias or none, `npu_quantize` to one operator.

    For norms without a residual before them, as the first of a model; any eps, both `div_mode`.

    - One scale for all values: `npu_rms_norm_quant`, which all devices have. It takes bias and
      offset as tensors, so zeros are made where the graph has none. Source of the table:
      aclnnRmsNormQuant takes float16 or bfloat16 throughout and an int8 offset; it divides.
    - One scale for each channel: `npu_rms_norm_quant_v2`, whose kernel aclnnRmsNormQuantV3 only
      Ascend950 has, so the rule needs to know that it is for one.

    There is no fused kernel in torch_npu 2.13 for a norm without residual and dynamic quantisation.
    The kernels quantise the norm as it is before rounding to its dtype, and that for one scale
    rounds to float16 in between: int8 values may differ by one. The numerics are `rounding`.

    Args:
        soc: Name of the device as `torch.npu.get_device_name()` gives it; empty for any.
    """
    return Rule(
        name="fuse_rms_norm_quant",
        patterns=norm_patterns(static_quantized),
        check=partial(_check, soc=soc),
        rewrite=_rewrite,
        operators=(
            "npu::npu_rms_norm",
            "npu::npu_quantize",
            "npu::npu_rms_norm_quant",
            "npu::npu_rms_norm_quant_v2",
        ),
        numerics="rounding",
    )
