"""Residual add + RMSNorm + one or two static quantisations, in `npu::npu_add_rms_norm_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.fusions.norms.residual_norm import (
    NORMS,
    norm_problem,
    residual_norm_patterns,
    sum_value,
)
from fx_passes.fusions.quantized import cast, inverse_scale, quantize_problem, static_quantized
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import dtype_in, same_shape, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


_BLOCK_BYTES = 32


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
    return static_quant_problem(match) or quantize_problem(match)


def static_quant_problem(match: Match) -> NoMatch | None:
    """Return why the kernel does not take a match of residual add, norm and quantisation.

    Args:
        match: A match that has `x`, `residual`, `weight`, `scale`, `offset`, `total_source`,
            perhaps `beta`, and the output `quantized`; for a second quantisation `scale2`,
            `offset2` and `second`. Literals are not looked at.
    """
    twice = "scale2" in match.bound
    return (
        norm_problem(match)
        or _block_problem(match)
        or _table_problem(match, "scale", "offset", "quantized")
        or (_table_problem(match, "scale2", "offset2", "second") if twice else None)
    )


def _block_problem(match: Match) -> NoMatch | None:
    # Of the weight, whose size is a number where torch.compile(dynamic=True) makes all others
    # symbols. Norms take no other size of rows than that of their weight.
    weight = match.tensor("weight")
    size = weight.shape[0]
    if not sizes_equal(size * weight.element_size() % _BLOCK_BYTES, 0):
        known = "no" if str(size).isdigit() else "not known to be a"
        return NoMatch(f"the last dimension {size} is {known} multiple of {_BLOCK_BYTES} bytes")
    return None


def _table_problem(
    match: Match, scale_name: str, offset_name: str, quantized: str
) -> NoMatch | None:
    """Return whether a quantisation is outside of the kernel's table, casts included."""
    unmet = same_shape(match, "weight", scale_name) or dtype_in(match, quantized, torch.int8)
    if unmet is not None:
        return unmet
    x, scale = match.tensor("x"), match.tensor(scale_name)
    # float16 takes a float32 scale; a float16 one is cast.
    allowed = (torch.bfloat16,) if x.dtype == torch.bfloat16 else (torch.float32, torch.float16)
    if scale.dtype not in allowed:
        return NoMatch(
            f"`{scale_name}` has dtype {scale.dtype}, which the kernel does not take for {x.dtype}"
        )
    offset = match.value(offset_name)
    if offset is None:
        return None
    if not isinstance(offset, torch.Tensor) or offset.shape != scale.shape:
        return NoMatch(f"`{offset_name}` has another shape than `{scale_name}`")
    allowed = (torch.bfloat16,) if x.dtype == torch.bfloat16 else (torch.int32, torch.float16)
    if offset.dtype not in allowed:
        return NoMatch(
            f"`{offset_name}` has dtype {offset.dtype}, which the kernel does not take for "
            f"{x.dtype}"
        )
    return None


def _operands(
    match: Match, name: str, offset_name: str, build: GraphBuilder
) -> tuple[Node, Node | None]:
    """Return a scale that is divided by and an offset, in the dtypes the kernel takes.

    Raises:
        RuleError: The scale is no node, or something has no fake value.
    """
    scale, x, offset = match.node(name), match.tensor("x"), match.bound[offset_name]
    half = x.dtype == torch.float16
    if match.bound.get("div_mode") is False:
        # The inverse of a float16 scale is taken in float32, in which the kernel wants it.
        scale = inverse_scale(scale, build, dtype=torch.float32 if half else x.dtype)
    shift = offset if isinstance(offset, Node) else None
    if half:
        scale = cast(scale, torch.float32, build)
        shift = None if shift is None else cast(shift, torch.int32, build)
    return scale, shift


def build_static_quant(match: Match, build: GraphBuilder, *quantized: Tensor) -> Node:
    """Return the call of the kernel for a match that `static_quant_problem` has nothing against.

    Its results 0 and 2 are the quantised values and the sum, 1 those by `scale2`; of both the fake
    values are given. A scale is inverted where the match has a `div_mode` that is False.
    """
    bound = match.bound
    scale, offset = _operands(match, "scale", "offset", build)
    twice = "scale2" in bound
    second, second_offset = _operands(match, "scale2", "offset2", build) if twice else (None, None)
    # Without a second scale nothing takes the second result, which looks like the first; a fake
    # tensor of its own would cost more than the whole rewrite.
    first = quantized[0]
    return build.call(
        "npu::npu_add_rms_norm_quant",
        *match.arguments("x", "residual", "weight"),
        scale,
        offset,
        bound.get("beta"),
        second,
        second_offset,
        epsilon=bound["epsilon"],
        val=(first, quantized[-1], sum_value(match)),
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    names = {"quantized": 0, "second": 1} if "scale2" in match.bound else {"quantized": 0}
    fused = build_static_quant(match, build, *map(match.tensor, names))
    return build.elements(fused, {**names, "total": 2})


def fuse_add_rms_norm_quant() -> Rule:
    """Return the rule residual add + RMSNorm + `npu_quantize` to `npu_add_rms_norm_quant`.

    Any eps; with and without a bias added to the norm; `npu_quantize` with `div_mode` True (divides
    by the scale) and False (multiplies by its reciprocal, as SGLang and vLLM-Ascend emit it); with
    and without use of the sum; after `npu_add_rms_norm` or after an addition and `npu_rms_norm`.

    The fused operator always runs with `div_mode=True`, the only mode that A2 and A3 support. For
    `False` the scale is the input of the `reciprocal` in the graph, or computed by a new one (an
    operator on one row, shared by all users of a scale; none if it is a constant of the module).
    Source
    of the dtype table: aclnnAddRmsNormQuantV2 accepts float16 with float32 scales and int32
    offsets, or bfloat16 throughout, and scales of gamma's shape; float16 scales and offsets are
    cast.

    The kernel quantises the norm before rounding it, and y / s and y * (1 / s) differ: int8
    values may differ by one. The numerics are `rounding`.
    """
    return _rule("fuse_add_rms_norm_quant", static_quantized)


def fuse_add_rms_norm_two_quants() -> Rule:
    """Return the rule residual add + RMSNorm + two `npu_quantize` to `npu_add_rms_norm_quant`.

    As attention with latent heads (MLA) writes it: two projections of one norm, each with a scale
    and an offset, or none, of its own, and one `div_mode`, axis and dtype. Else as
    `fuse_add_rms_norm_quant`; aclnnAddRmsNormQuantV2 takes the second scale and offset as it takes
    the first.
    """
    return _rule("fuse_add_rms_norm_two_quants", _quantized_twice)


def _rule(name: str, quantized: Link) -> Rule:
    return Rule(
        name=name,
        patterns=residual_norm_patterns(quantized),
        check=_check,
        rewrite=_rewrite,
        operators=(*NORMS, "npu::npu_quantize", "npu::npu_add_rms_norm_quant"),
        numerics="rounding",
    )
