"""Residual add + RMSNorm + static quantisation, fused into `npu::npu_add_rms_norm_quant`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.norms.residual_norm import (
    RESIDUAL_NORMS,
    ResidualNorm,
    residual_norm_problem,
    sum_value,
)
from fx_passes.fusions.quantized import cast, inverse_scale, quantize_problem
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["build_static_quant", "fuse_add_rms_norm_quant", "static_quant_problem"]

_REQUIREMENTS = (
    Requirement.same_shape("weight", "scale"),
    Requirement.dtype_in("quantized", torch.int8),
)
_BLOCK_BYTES = 32


def _plain(norm: ResidualNorm) -> Callable[..., dict[str, Tensor]]:
    def pattern(
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
        normed, total = norm(x, residual, weight, epsilon)
        quantized = torch.ops.npu.npu_quantize(normed, scale, offset, dtype, axis, div_mode)
        return {"quantized": quantized, "total": total}

    return pattern


def _biased(norm: ResidualNorm) -> Callable[..., dict[str, Tensor]]:
    def pattern(
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        beta: Tensor,
        epsilon: float,
        scale: Tensor,
        offset: Tensor | None,
        dtype: object,
        axis: int,
        div_mode: bool,
    ) -> dict[str, Tensor]:
        normed, total = norm(x, residual, weight, epsilon)
        shifted = normed + beta
        quantized = torch.ops.npu.npu_quantize(shifted, scale, offset, dtype, axis, div_mode)
        return {"quantized": quantized, "total": total}

    return pattern


def _check(match: Match) -> NoMatch | None:
    return static_quant_problem(match) or quantize_problem(match, "x")


def static_quant_problem(match: Match) -> NoMatch | None:
    """Return why the kernel does not take a match of residual add, norm and quantisation.

    Args:
        match: A match that has `x`, `residual`, `weight`, `scale`, `offset`, `total_source`,
            perhaps `beta`, and the output `quantized`. Literals are not looked at.
    """
    return (
        residual_norm_problem(match)
        or first_unmet(match, *_REQUIREMENTS)
        or _block_problem(match)
        or _table_problem(match)
    )


def _block_problem(match: Match) -> NoMatch | None:
    tensors = match.tensors("x")
    if isinstance(tensors, NoMatch):
        return tensors
    (x,) = tensors
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


def _kernel_operands(match: Match, scale: object, build: GraphBuilder) -> tuple[Node, Node | None]:
    """Return a scale that is divided by and the match's offset, in the dtypes the kernel takes.

    Raises:
        RuleError: The scale is no node, or something has no fake value.
    """
    x, offset = match.value("x"), match.bound["offset"]
    if not isinstance(scale, Node) or not isinstance(x, torch.Tensor):
        raise RuleError("building static quantisation after a norm: the match was not checked")
    shift = offset if isinstance(offset, Node) else None
    if x.dtype == torch.float16:
        scale = cast(scale, torch.float32, build)
        shift = None if shift is None else cast(shift, torch.int32, build)
    return scale, shift


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, x, quantized = match.bound, match.value("x"), match.value("quantized")
    scale = bound["scale"]
    if (
        not isinstance(scale, Node)
        or not isinstance(x, torch.Tensor)
        or not isinstance(quantized, torch.Tensor)
    ):
        raise RuleError("building npu_add_rms_norm_quant: the match was not checked")
    if bound["div_mode"] is False:
        # The inverse of a float16 scale is taken in float32, in which the kernel wants it.
        half = x.dtype == torch.float16
        scale = inverse_scale(scale, build, dtype=torch.float32 if half else x.dtype)
    fused = build_static_quant(match, build, scale, quantized)
    return build.elements(fused, {"quantized": 0, "total": 2})


def build_static_quant(match: Match, build: GraphBuilder, scale: object, quantized: Tensor) -> Node:
    """Return the call of the kernel for a match that `static_quant_problem` has nothing against.

    Its results 0 and 2 are the quantised values and the sum.

    Args:
        match: The match.
        build: The builder of the rewrite.
        scale: The node that is divided by.
        quantized: The fake value of the quantised values.
    """
    bound = match.bound
    divisor, offset = _kernel_operands(match, scale, build)
    return build.call(
        "npu::npu_add_rms_norm_quant",
        bound["x"],
        bound["residual"],
        bound["weight"],
        divisor,
        offset,
        bound.get("beta"),
        epsilon=bound["epsilon"],
        val=(quantized, torch.empty_like(quantized), sum_value(match)),
    )


def fuse_add_rms_norm_quant() -> tuple[Rule, ...]:
    """Return the rule residual add + RMSNorm + `npu_quantize` to `npu_add_rms_norm_quant`.

    Any eps; with and without a bias added to the norm; `npu_quantize` with `div_mode` True (divides
    by the scale) and False (multiplies by its reciprocal, as SGLang and vLLM-Ascend emit it); with
    and without use of the sum; after `npu_add_rms_norm` or after an addition and `npu_rms_norm`.

    The fused operator always runs with `div_mode=True`, the only one that A2 and A3 take. For
    `False` the scale is taken from the `reciprocal` in the graph, or computed by one (an operator
    on one row, one for all that share a scale, none where it is a constant of the module). Source
    of the dtype table: aclnnAddRmsNormQuantV2 takes float16 with float32 scales and int32 offsets,
    or bfloat16 throughout, scales of gamma's shape; float16 scales and offsets are cast.

    The kernel quantises the norm as it is before rounding, and y / s and y * (1 / s) differ: int8
    values may differ by one. The numerics are `rounding`.
    """
    rule = Rule(
        name="fuse_add_rms_norm_quant",
        patterns=(*map(_plain, RESIDUAL_NORMS), *map(_biased, RESIDUAL_NORMS)),
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
    return (rule,)
