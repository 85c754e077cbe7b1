"""Shared parts of fusions that end with quantisation: literals, scale and offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.graph_argument import literals_equal
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# What `npu_quantize` takes for int8: as torch numbers int8 and qint8, and both as objects.
_INT8 = (1, 12, torch.int8, torch.qint8)


MX_QUANTIZE = "npu::npu_dynamic_mx_quant"
"""The quantisation that graphs hold."""

_BLOCK = 32
_SCALE_ALGORITHMS = (0, 1)


def static_quantized(
    values: Tensor, scale: Tensor, offset: Tensor | None, dtype: object, axis: int, div_mode: bool
) -> Linked:
    """Quantise by given scales in a pattern; a link of `combine`."""
    quantize = torch.ops.npu.npu_quantize
    return None, {"quantized": quantize(values, scale, offset, dtype, axis, div_mode)}


def row_quantized(values: Tensor, smooth: Tensor | None, dtype: object) -> Linked:
    """Quantise each row by its own scale in a pattern; a link of `combine`."""
    quant = torch.ops.npu.npu_dynamic_quant(values, smooth_scales=smooth, dst_type=dtype)
    quant = label(quant, "quant")
    return None, {"quantized": quant[0], "scale": quant[1]}


def mx_quantized(
    values: Tensor, axis: int, mode: str, dtype: int, block: int, algorithm: int
) -> Linked:
    """Quantise by blocks in a pattern; a link of `combine`."""
    quant = torch.ops.npu.npu_dynamic_mx_quant(
        values, axis=axis, round_mode=mode, dst_type=dtype, block_size=block, scale_alg=algorithm
    )
    quant = label(quant, "quant")
    return None, {"quantized": quant[0], "scale": quant[1]}


def dynamic_dtype_problem(match: Match) -> NoMatch | None:
    """Return why an `npu_dynamic_quant` with bound `dtype` does not give int8, its default."""
    dtype = match.bound["dtype"]
    # By number as torch numbers it; True equals 1, and is no dtype.
    if dtype is None or dtype is torch.int8 or (dtype == 1 and not isinstance(dtype, bool)):
        return None
    return NoMatch(f"quantisation to {dtype}; the kernel gives int8")


def quantize_problem(match: Match) -> NoMatch | None:
    """Return why an `npu_quantize` of `x`, or of its norm, is not fused."""
    rank, bound = match.tensor("x").dim(), match.bound
    if bound["dtype"] not in _INT8:
        return NoMatch(f"quantisation to {bound['dtype']}; the kernel gives int8")
    if bound["axis"] not in {-1, rank - 1}:
        return NoMatch(f"quantisation along axis {bound['axis']} of {rank}, not the last")
    if not isinstance(bound["div_mode"], bool):
        return NoMatch(f"div_mode {bound['div_mode']} is not known")
    return None


def mx_quant_problem(match: Match) -> NoMatch | None:
    """Return why the quantisation is not along the last dimension in the kernels' one manner."""
    bound, x = match.bound, match.tensor("x")
    # The rewrite needs their fake values.
    match.results("quant")
    if bound["axis"] not in {-1, x.dim() - 1}:
        return NoMatch(f"quantisation along axis {bound['axis']} of {x.dim()}, not the last")
    if bound["block"] != _BLOCK:
        return NoMatch(f"blocks of {bound['block']}; the kernel has blocks of {_BLOCK}")
    if bound["algorithm"] not in _SCALE_ALGORITHMS:
        return NoMatch(f"scale_alg {bound['algorithm']}; the kernel has {_SCALE_ALGORITHMS}")
    return None


def inverse_scale(scale: Node, build: GraphBuilder, *, dtype: torch.dtype) -> Node:
    """Return one over a scale: the tensor that it is the reciprocal of, if known, else a new node.

    `ShareEqualCallsPass` leaves one such node per scale, and `FoldConstantsPass` none if
    the scale is a constant of the module.

    Raises:
        RuleError: The scale has no fake value.
    """
    found = _inverted(scale)
    if found is not None:
        source, inverse = found
        # Neither the scale nor its reciprocal may have been written since.
        if build.unchanged(source, inverse) and build.unchanged(scale, inverse):
            return cast(source, dtype, build)
    wide = cast(scale, dtype, build)
    return build.call("aten::reciprocal", wide, val=wide.meta.get("val"))


def _inverted(scale: Node) -> tuple[Node, Node] | None:
    """Return the tensor that a scale is the reciprocal of, and the node that inverts it.

    AOTAutograd writes 1 / x as the reciprocal times one.
    """
    aten = torch.ops.aten
    if scale.target is aten.mul.Tensor and literals_equal(scale.args[1], 1):
        product = scale.args[0]
        return _inverted(product) if isinstance(product, Node) else None
    source = scale.args[0] if scale.args else None
    if scale.target is aten.reciprocal.default and isinstance(source, Node):
        return source, scale
    return None


def cast(node: Node, dtype: torch.dtype, build: GraphBuilder) -> Node:
    """Return a tensor in another dtype, itself where it has that.

    Raises:
        RuleError: The node has no fake value.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise RuleError(f"casting `{node.name}` to {dtype}: it has no tensor metadata")
    if value.dtype == dtype:
        return node
    return build.call("aten::_to_copy", node, dtype=dtype, val=value.to(dtype))
