"""SwiGLU + quantisation, fused into one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.fusions.quantized import (
    MX_QUANTIZE,
    cast,
    dynamic_dtype_problem,
    inverse_scale,
    mx_quant_problem,
    mx_quantized,
    quantize_problem,
    row_quantized,
    static_quantized,
)
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import dtype_in, rank_is, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# aclnnDequantSwigluQuantV2 on A2 and A3: two dimensions, the last one a multiple of this.
_WIDTH_UNIT = 64
# aclnnSwiGluQuantV2.
_WIDEST = 8192


def _activated(x: Tensor, dim: int) -> Linked:
    return torch.ops.npu.npu_swiglu(x, dim), {}


def _halves_problem(match: Match) -> NoMatch | None:
    """Return why the halves of `x` are not those of its last dimension."""
    dim, rank = match.bound["dim"], match.tensor("x").dim()
    if dim not in {-1, rank - 1}:
        return NoMatch(f"the halves are along dimension {dim} of {rank}")
    return None


def _rows_problem(match: Match) -> NoMatch | None:
    """Return why `x` is not rows of the width and dtype that npu_dequant_swiglu_quant takes."""
    unmet = rank_is(match, 2, "x") or dtype_in(match, "x", torch.bfloat16)
    if unmet is not None:
        return unmet
    width = match.tensor("x").shape[-1]
    if not sizes_equal(width % _WIDTH_UNIT, 0):
        known = "no" if str(width).isdigit() else "not known to be a"
        return NoMatch(f"the last dimension {width} is {known} multiple of {_WIDTH_UNIT}")
    return _halves_problem(match)


def _check_dynamic(match: Match) -> NoMatch | None:
    problem = dynamic_dtype_problem(match) or _rows_problem(match)
    if problem is not None:
        return problem
    (quantized, _), smooth = match.results("quant"), match.value("smooth")
    if quantized.dtype != torch.int8:
        return NoMatch(f"quantisation to {quantized.dtype}; the kernel gives int8")
    if isinstance(smooth, torch.Tensor):
        return _factor_problem(match, smooth, "smooth")
    return None


def _factor_problem(match: Match, factor: Tensor, name: str) -> NoMatch | None:
    half = match.tensor("x").shape[-1] // 2
    fits = factor.dim() == 1 and (sizes_equal(factor.shape[0], half) or factor.shape[0] == 1)
    if not fits:
        return NoMatch(f"`{name}` has shape {list(factor.shape)}; the kernel takes [{half}] or [1]")
    return None


def _rewrite_dynamic(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    smooth = bound["smooth"]
    fused = build.call(
        "npu::npu_dequant_swiglu_quant",
        bound["x"],
        quant_scale=_row(smooth, build) if isinstance(smooth, Node) else None,
        activate_left=True,
        quant_mode=1,
        val=match.results("quant"),
    )
    return build.elements(fused, {"quantized": 0, "scale": 1})


def _row(factor: Node, build: GraphBuilder) -> Node:
    """Return a factor for each channel as the one row of float32 that the kernels take."""
    wide = cast(factor, torch.float32, build)
    value = wide.meta["val"]
    return build.call("aten::unsqueeze", wide, 0, val=value.unsqueeze(0))


def _check_static(match: Match) -> NoMatch | None:
    x, scale = match.tensor("x"), match.tensor("scale")
    rows = _rows_problem if x.dtype == torch.bfloat16 else _narrow_problem
    problem = (
        rows(match)
        or quantize_problem(match)
        or dtype_in(match, "quantized", torch.int8)
        or _factor_problem(match, scale, "scale")
    )
    offset = match.value("offset")
    if problem is None and isinstance(offset, torch.Tensor) and offset.shape != scale.shape:
        return NoMatch("`offset` has another shape than `scale`")
    return problem


def _narrow_problem(match: Match) -> NoMatch | None:
    """Return why npu_swiglu_quant does not support `x`."""
    unmet = dtype_in(match, "x", torch.float16)
    if unmet is not None:
        return unmet
    x = match.tensor("x")
    known = all(isinstance(size, int) for size in x.shape[-1:])
    if x.dim() < 2 or not known or x.shape[-1] > _WIDEST:
        return NoMatch(
            f"`x` has shape {list(x.shape)}; the kernel takes 2 dimensions or more, the last of at "
            f"most {_WIDEST}"
        )
    return _halves_problem(match)


def _rewrite_static(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, x, quantized = match.bound, match.tensor("x"), match.tensor("quantized")
    scale, offset = match.node("scale"), bound["offset"]
    divides = x.dtype == torch.bfloat16
    if bound["div_mode"] is not divides:
        scale = inverse_scale(scale, build, dtype=torch.float32)
    row = _row(scale, build)
    if isinstance(offset, Node):
        shift = _row(offset, build)
    else:
        shift = build.call("aten::zeros_like", row, val=row.meta["val"])
    scales = x.new_empty(x.shape[:-1], dtype=torch.float32)
    if divides:
        operator, factors = "npu_dequant_swiglu_quant", {"quant_scale": row, "quant_offset": shift}
    else:
        operator, factors = "npu_swiglu_quant", {"smooth_scales": row, "offsets": shift}
    fused = build.call(
        f"npu::{operator}", bound["x"], **factors, activate_left=True, val=(quantized, scales)
    )
    return build.elements(fused, {"quantized": 0})


def _check_mx(match: Match) -> NoMatch | None:
    x = match.tensor("x")
    unmet = (
        dtype_in(match, "x", torch.bfloat16, torch.float16)
        or mx_quant_problem(match)
        or _halves_problem(match)
    )
    if unmet is None and (x.dim() < 2 or not sizes_equal(x.shape[-1] % 2, 0)):
        return NoMatch(f"`x` has the shape {list(x.shape)}; the kernel takes 2 dimensions or more")
    return unmet


def _rewrite_mx(match: Match, build: GraphBuilder) -> dict[str, Node]:
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


def fuse_swiglu_dynamic_quant() -> Rule:
    """Return the rule `npu_swiglu` + `npu_dynamic_quant` to `npu_dequant_swiglu_quant`.

    With and without smooth scales, which are cast to float32 for the kernel. Only int8,
    per token, without groups. Source of the table: aclnnDequantSwigluQuantV2 accepts bfloat16 on A2
    and A3, two dimensions, the last a multiple of 64. `npu_swiglu_quant`, which accepts float16, is
    no substitute: it returns 127 / max, the reciprocal of the scale of `npu_dynamic_quant`.

    The kernel quantises before rounding: int8 values may differ by one, the numerics are
    `rounding`.
    """
    return Rule(
        name="fuse_swiglu_dynamic_quant",
        patterns=(combine(_activated, row_quantized),),
        check=_check_dynamic,
        rewrite=_rewrite_dynamic,
        operators=("npu::npu_swiglu", "npu::npu_dynamic_quant", "npu::npu_dequant_swiglu_quant"),
        numerics="rounding",
    )


def fuse_swiglu_quant() -> Rule:
    """Return the rule `npu_swiglu` + `npu_quantize` to one operator.

    One scale or one for each channel, both `div_mode`, with and without an offset; scale and offset
    are cast to the float32 that the kernels take. bfloat16 goes to `npu_dequant_swiglu_quant`,
    which divides and takes any width that is a multiple of 64; float16 to `npu_swiglu_quant`, which
    multiplies and takes up to 8192. The scale is inverted where the graph has the other one; see
    `inverse_scale`.

    The kernels quantise before rounding: int8 values may differ by one, the numerics are
    `rounding`.
    """
    return Rule(
        name="fuse_swiglu_quant",
        patterns=(combine(_activated, static_quantized),),
        check=_check_static,
        rewrite=_rewrite_static,
        operators=(
            "npu::npu_swiglu",
            "npu::npu_quantize",
            "npu::npu_dequant_swiglu_quant",
            "npu::npu_swiglu_quant",
        ),
        numerics="rounding",
    )


def fuse_swiglu_mx_quant() -> Rule:
    """Return the rule `npu_swiglu` + `npu_dynamic_mx_quant` to `npu_swiglu_mx_quant`.

    Halves and blocks of 32 along the last dimension, any rounding mode and result dtype. Only
    Ascend950 has either kernel. The fused one quantises before rounding: the numerics are
    `rounding`.
    """
    return Rule(
        name="fuse_swiglu_mx_quant",
        patterns=(combine(_activated, mx_quantized),),
        check=_check_mx,
        rewrite=_rewrite_mx,
        operators=("npu::npu_swiglu", MX_QUANTIZE, "npu::npu_swiglu_mx_quant"),
        numerics="rounding",
    )
