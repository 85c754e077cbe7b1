"""Block-wise (MX) quantisation behind a norm or SwiGLU, fused with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.fusions.norms.residual_norm import (
    RESIDUAL_NORMS,
    ResidualNorm,
    norm_problem,
    residual_norm_problem,
    sum_value,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = [
    "add_norm_mx_problem",
    "build_add_norm_mx",
    "build_norm_mx",
    "fuse_add_rms_norm_dynamic_mx_quant",
    "fuse_rms_norm_dynamic_mx_quant",
    "fuse_swiglu_mx_quant",
    "mx_quantized",
    "norm_mx_problem",
]

_BLOCK = 32
_SCALE_ALGORITHMS = (0, 1)


def mx_quantized(
    values: Tensor, axis: int, mode: str, dtype: int, block: int, algorithm: int
) -> dict[str, Tensor]:
    """Return, in a pattern, `quantized` and `scale` of an `npu_dynamic_mx_quant`."""
    quant = label(
        torch.ops.npu.npu_dynamic_mx_quant(
            values,
            axis=axis,
            round_mode=mode,
            dst_type=dtype,
            block_size=block,
            scale_alg=algorithm,
        ),
        "quant",
    )
    return {"quantized": quant[0], "scale": quant[1]}


def _add_norm(norm: ResidualNorm) -> Callable[..., dict[str, Tensor]]:
    def pattern(
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        epsilon: float,
        axis: int,
        mode: str,
        dtype: int,
        block: int,
        algorithm: int,
    ) -> dict[str, Tensor]:
        normed, total = norm(x, residual, weight, epsilon)
        return {"total": total, **mx_quantized(normed, axis, mode, dtype, block, algorithm)}

    return pattern


def _add_norm_biased(norm: ResidualNorm) -> Callable[..., dict[str, Tensor]]:
    def pattern(
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        beta: Tensor,
        epsilon: float,
        axis: int,
        mode: str,
        dtype: int,
        block: int,
        algorithm: int,
    ) -> dict[str, Tensor]:
        normed, total = norm(x, residual, weight, epsilon)
        return {"total": total, **mx_quantized(normed + beta, axis, mode, dtype, block, algorithm)}

    return pattern


def _norm(
    x: Tensor,
    weight: Tensor,
    epsilon: float,
    axis: int,
    mode: str,
    dtype: int,
    block: int,
    algorithm: int,
) -> dict[str, Tensor]:
    normed = torch.ops.npu.npu_rms_norm(x, weight, epsilon)[0]
    return mx_quantized(normed, axis, mode, dtype, block, algorithm)


def _norm_biased(
    x: Tensor,
    weight: Tensor,
    beta: Tensor,
    epsilon: float,
    axis: int,
    mode: str,
    dtype: int,
    block: int,
    algorithm: int,
) -> dict[str, Tensor]:
    normed = torch.ops.npu.npu_rms_norm(x, weight, epsilon)[0] + beta
    return mx_quantized(normed, axis, mode, dtype, block, algorithm)


def _swiglu(
    x: Tensor, dim: int, axis: int, mode: str, dtype: int, block: int, algorithm: int
) -> dict[str, Tensor]:
    activated = torch.ops.npu.npu_swiglu(x, dim)
    return mx_quantized(activated, axis, mode, dtype, block, algorithm)


def _quant_problem(match: Match) -> NoMatch | None:
    """Return why the quantisation is not along the last dimension in the kernels' one manner."""
    bound, x = match.bound, match.value("x")
    if not isinstance(x, torch.Tensor) or not isinstance(match.value("quant"), (tuple, list)):
        return NoMatch("no tensor metadata for the quantised values")
    if bound["axis"] not in {-1, x.dim() - 1}:
        return NoMatch(f"quantisation along axis {bound['axis']} of {x.dim()}, not the last")
    if bound["block"] != _BLOCK:
        return NoMatch(f"blocks of {bound['block']}; the kernel has blocks of {_BLOCK}")
    if bound["algorithm"] not in _SCALE_ALGORITHMS:
        return NoMatch(f"scale_alg {bound['algorithm']}; the kernel has {_SCALE_ALGORITHMS}")
    return None


def add_norm_mx_problem(match: Match) -> NoMatch | None:
    """Return why no kernel takes a match of residual add, norm and MX quantisation."""
    return residual_norm_problem(match) or _quant_problem(match)


def norm_mx_problem(match: Match) -> NoMatch | None:
    """Return why no kernel takes a match of a norm and MX quantisation."""
    return norm_problem(match) or _quant_problem(match)


def _check_swiglu(match: Match) -> NoMatch | None:
    unmet = first_unmet(match, Requirement.dtype_in("x", torch.bfloat16, torch.float16))
    return unmet or _quant_problem(match) or _swiglu_problem(match)


def _swiglu_problem(match: Match) -> NoMatch | None:
    tensors = match.tensors("x")
    if isinstance(tensors, NoMatch):
        return tensors
    (x,) = tensors
    if match.bound["dim"] not in {-1, x.dim() - 1}:
        return NoMatch(f"the halves are along dimension {match.bound['dim']} of {x.dim()}")
    if not sizes_equal(x.shape[-1] % 2, 0) or x.dim() < 2:
        return NoMatch(f"`x` has the shape {list(x.shape)}; the kernel takes 2 dimensions or more")
    return None


def _quant_values(match: Match) -> tuple[Tensor, Tensor]:
    quant = match.value("quant")
    if not isinstance(quant, (tuple, list)):
        raise RuleError("building a fused MX quantisation: npu_dynamic_mx_quant has no metadata")
    quantized, scale = quant
    return quantized, scale


def _deviations(match: Match) -> Tensor:
    """Return the fake value of the reciprocal standard deviations, which the kernels return too."""
    x = match.value("x")
    if not isinstance(x, torch.Tensor):
        raise RuleError("building a fused MX quantisation: `x` has no metadata")
    return x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


def _rewrite_add_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_add_norm_mx(match, build, *_quant_values(match))
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
        beta=bound.get("beta"),
        epsilon=bound["epsilon"],
        scale_alg=bound["algorithm"],
        round_mode=bound["mode"],
        dst_type=bound["dtype"],
        val=(quantized, sum_value(match), scale, _deviations(match)),
    )


def _rewrite_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build_norm_mx(match, build, *_quant_values(match))
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
        beta=bound.get("beta"),
        epsilon=bound["epsilon"],
        scale_alg=bound["algorithm"],
        round_mode=bound["mode"],
        dst_type=bound["dtype"],
        val=(quantized, scale, _deviations(match)),
    )


def _rewrite_swiglu(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    fused = build.call(
        "npu::npu_swiglu_mx_quant",
        bound["x"],
        activate_left=True,
        dst_type=bound["dtype"],
        round_mode=bound["mode"],
        scale_alg=bound["algorithm"],
        val=_quant_values(match),
    )
    return build.elements(fused, {"quantized": 0, "scale": 1})


_SOURCE = "npu::npu_dynamic_mx_quant"


def fuse_add_rms_norm_dynamic_mx_quant() -> tuple[Rule, ...]:
    """Return the rule residual add + RMSNorm + `npu_dynamic_mx_quant` to one operator.

    Any eps, rounding mode and result dtype (float8 and float4), blocks of 32 along the last
    dimension; with and without a bias added to the norm and use of the sum. Only Ascend950 has the
    kernel, aclnnAddRmsNormDynamicMxQuant, and only it has `npu_dynamic_mx_quant`, so a graph that
    could be rewritten is for such a device. The kernel quantises the norm before it is rounded:
    the numerics are `rounding`.
    """
    rule = Rule(
        name="fuse_add_rms_norm_dynamic_mx_quant",
        patterns=(*map(_add_norm, RESIDUAL_NORMS), *map(_add_norm_biased, RESIDUAL_NORMS)),
        check=add_norm_mx_problem,
        rewrite=_rewrite_add_norm,
        operators=(
            "npu::npu_rms_norm",
            "npu::npu_add_rms_norm",
            _SOURCE,
            "npu::npu_add_rms_norm_dynamic_mx_quant",
        ),
        numerics="rounding",
    )
    return (rule,)


def fuse_rms_norm_dynamic_mx_quant() -> tuple[Rule, ...]:
    """Return the rule `npu_rms_norm` + `npu_dynamic_mx_quant` to one operator.

    For norms without a residual before them; else as `fuse_add_rms_norm_dynamic_mx_quant`.
    """
    rule = Rule(
        name="fuse_rms_norm_dynamic_mx_quant",
        patterns=(_norm, _norm_biased),
        check=norm_mx_problem,
        rewrite=_rewrite_norm,
        operators=("npu::npu_rms_norm", _SOURCE, "npu::npu_rms_norm_dynamic_mx_quant"),
        numerics="rounding",
    )
    return (rule,)


def fuse_swiglu_mx_quant() -> tuple[Rule, ...]:
    """Return the rule `npu_swiglu` + `npu_dynamic_mx_quant` to `npu_swiglu_mx_quant`.

    Halves and blocks of 32 along the last dimension, any rounding mode and result dtype. Only
    Ascend950 has either kernel. The fused one quantises before rounding: the numerics are
    `rounding`.
    """
    rule = Rule(
        name="fuse_swiglu_mx_quant",
        patterns=(_swiglu,),
        check=_check_swiglu,
        rewrite=_rewrite_swiglu,
        operators=("npu::npu_swiglu", _SOURCE, "npu::npu_swiglu_mx_quant"),
        numerics="rounding",
    )
    return (rule,)
