"""Residual add + RMSNorm + static quantisation, fused into `npu::npu_add_rms_norm_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.match import Match, NoMatch
from fx_passes.pattern import label
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.graph_builder import GraphBuilder

__all__ = ["fuse_add_rms_norm_quant"]

# npu_add_rms_norm does not broadcast either, so this concerns additions only.
_ADDITION = (Requirement.same_shape("x", "residual"),)
_REQUIREMENTS = (
    Requirement.same_dtype("x", "residual", "weight"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16),
    Requirement.rank("weight", 1),
    Requirement.same_shape("weight", "scale"),
    Requirement.dtype_in("quantized", torch.int8),
)
# torch.qint8 as torch itself numbers it, int8 as torch numbers it, and both as objects.
_INT8 = (1, 12, torch.int8, torch.qint8)
_BLOCK_BYTES = 32


def _separate(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    epsilon: float,
    scale: Tensor,
    offset: Tensor | None,
    dtype: object,
    axis: int,
    div_mode: bool,
) -> dict[str, Tensor]:
    total = label(x + residual, "total_source")
    normed = torch.ops.npu.npu_rms_norm(total, weight, epsilon)[0]
    quantized = torch.ops.npu.npu_quantize(normed, scale, offset, dtype, axis, div_mode)
    return {"quantized": quantized, "total": total}


def _joined(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    epsilon: float,
    scale: Tensor,
    offset: Tensor | None,
    dtype: object,
    axis: int,
    div_mode: bool,
) -> dict[str, Tensor]:
    added = label(torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon), "total_source")
    quantized = torch.ops.npu.npu_quantize(added[0], scale, offset, dtype, axis, div_mode)
    return {"quantized": quantized, "total": added[2]}


def _check(match: Match) -> NoMatch | None:
    addition = _ADDITION if isinstance(match.value("total_source"), torch.Tensor) else ()
    unmet = first_unmet(match, *addition, *_REQUIREMENTS)
    return unmet or _quantize_problem(match) or _table_problem(match)


def _quantize_problem(match: Match) -> NoMatch | None:
    tensors = match.tensors("x")
    if isinstance(tensors, NoMatch):
        return tensors
    (x,) = tensors
    bound = match.bound
    if bound["dtype"] not in _INT8:
        return NoMatch(f"quantisation to {bound['dtype']}; the kernel gives int8")
    if bound["axis"] not in {-1, x.dim() - 1}:
        return NoMatch(f"quantisation along axis {bound['axis']} of {x.dim()}, not the last")
    if not isinstance(bound["div_mode"], bool):
        return NoMatch(f"div_mode {bound['div_mode']} is not known")
    size = x.shape[-1]
    if not sizes_equal(size * x.element_size() % _BLOCK_BYTES, 0):
        return NoMatch(f"the last dimension {size} is no multiple of {_BLOCK_BYTES} bytes")
    return None


def _table_problem(match: Match) -> NoMatch | None:
    """Return whether scale and offset are outside of the kernel's table, casts included."""
    tensors = match.tensors("x", "scale")
    if isinstance(tensors, NoMatch):
        return tensors
    x, scale = tensors
    # float16 takes a float32 scale; a float16 one is cast.
    allowed = (torch.bfloat16,) if x.dtype == torch.bfloat16 else (torch.float32, torch.float16)
    if scale.dtype not in allowed:
        return NoMatch(
            f"`scale` has dtype {scale.dtype}, which the kernel does not take for {x.dtype}"
        )
    offset = match.value("offset")
    if offset is None:
        return None
    if not isinstance(offset, torch.Tensor) or offset.shape != scale.shape:
        return NoMatch("`offset` has another shape than `scale`")
    allowed = (torch.bfloat16,) if x.dtype == torch.bfloat16 else (torch.int32, torch.float16)
    if offset.dtype not in allowed:
        return NoMatch(
            f"`offset` has dtype {offset.dtype}, which the kernel does not take for {x.dtype}"
        )
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, x, quantized = match.bound, match.value("x"), match.value("quantized")
    scale, offset = bound["scale"], bound["offset"]
    if (
        not isinstance(scale, Node)
        or not isinstance(x, torch.Tensor)
        or not isinstance(quantized, torch.Tensor)
    ):
        raise RuleError("building npu_add_rms_norm_quant: the match was not checked")
    if bound["div_mode"] is False:
        scale = _inverse(scale, build)
    if x.dtype == torch.float16:
        scale = _cast(scale, torch.float32, build)
        offset = _cast(offset, torch.int32, build) if isinstance(offset, Node) else None
    source = match.value("total_source")
    total = source[2] if isinstance(source, (tuple, list)) else source
    fused = build.call(
        "npu::npu_add_rms_norm_quant",
        bound["x"],
        bound["residual"],
        bound["weight"],
        scale,
        offset,
        epsilon=bound["epsilon"],
        val=(quantized, torch.empty_like(quantized), total),
    )
    return build.elements(fused, {"quantized": 0, "total": 2})


def _inverse(scale: Node, build: GraphBuilder) -> Node:
    """Return the scale that a reciprocal was made of: from the graph where it has it."""
    if scale.target is torch.ops.aten.reciprocal.default and isinstance(scale.args[0], Node):
        return scale.args[0]
    return build.call("aten::reciprocal", scale, val=scale.meta.get("val"))


def _cast(node: Node, dtype: torch.dtype, build: GraphBuilder) -> Node:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype == dtype:
        return node
    return build.call("aten::_to_copy", node, dtype=dtype)


def fuse_add_rms_norm_quant() -> Rule:
    """Return the rule residual add + RMSNorm + `npu_quantize` to `npu_add_rms_norm_quant`.

    Any eps; `npu_quantize` with `div_mode` True (divides by the scale) and False (multiplies by its
    reciprocal, as SGLang and vLLM-Ascend emit it); with and without use of the sum; after
    `npu_add_rms_norm` or after an addition and `npu_rms_norm`.

    The fused operator always runs with `div_mode=True`, which every kernel has. For `False` the
    scale is taken from the `reciprocal` in the graph, or computed by one (an operator on one row,
    which a caller may fold into the weights). Source of the dtype table: aclnnAddRmsNormQuant takes
    float16 with float32 scales and int32 offsets, or bfloat16 throughout, scales of gamma's shape;
    float16 scales and offsets are cast. y / s and y * (1 / s) may differ by one step of int8: the
    numerics are `rounding`.
    """
    return Rule(
        name="fuse_add_rms_norm_quant",
        patterns=(_joined, _separate),
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
