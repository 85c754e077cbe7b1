"""SwiGLU of clipped halves or neighbours, fused into `npu::npu_clipped_swiglu`."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.gated_halves import halves_problem
from fx_passes.fusions.halves import HALVES, Parts, neighbours
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import is_dense, is_number, same_shape
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder

# Atlas A2 and A3.
_DEVICES = ("Ascend910B", "Ascend910_93")


def _clipped(parts: Parts, limit: float, lower: float, upper: float) -> Linked:
    _, gate, up = parts
    clipped_gate = torch.ops.aten.clamp(gate, None, limit)
    clipped_up = torch.ops.aten.clamp(up, lower, upper)
    return (label(clipped_gate, "gate"), label(clipped_up, "up")), {}


def _by_sigmoid(parts: tuple[Tensor, Tensor], alpha: float, bias: float) -> Linked:
    gate, up = parts
    return None, {"y": gate * torch.sigmoid(gate * alpha) * (up + bias)}


def _by_silu(parts: tuple[Tensor, Tensor]) -> Linked:
    gate, up = parts
    return None, {"y": torch.ops.aten.silu(gate) * up}


def _by_kernel(parts: tuple[Tensor, Tensor], cat_dim: int, halved_dim: int) -> Linked:
    joined = torch.ops.aten.cat(list(parts), cat_dim)
    return None, {"y": torch.ops.npu.npu_swiglu(joined, halved_dim)}


_PATTERNS = tuple(
    combine(cut, _clipped, activation)
    for cut in (neighbours, *HALVES)
    for activation in (_by_sigmoid, _by_silu, _by_kernel)
)


def _check(match: Match, *, soc: str) -> NoMatch | None:
    return (
        _device_problem(soc)
        or _literal_problem(match)
        or halves_problem(match)
        # Of other parts, a concatenation may have the right size.
        or same_shape(match, "y", "gate", "up")
        or _place_problem(match)
    )


def _device_problem(soc: str) -> NoMatch | None:
    if soc and not soc.startswith(_DEVICES):
        known = " and ".join(_DEVICES)
        return NoMatch(f"the kernel exists on {known}; the rule was made for {soc}")
    return None


def _literal_problem(match: Match) -> NoMatch | None:
    """Return why the kernel cannot have the limits, the factor and the addend."""
    bound = match.bound
    for name in ("limit", "lower", "upper", "alpha", "bias"):
        if not is_number(number := bound.get(name, 0)):
            return NoMatch(f"`{name}` is {number}; it must be a number")
    limit, lower, upper = match.arguments("limit", "lower", "upper")
    if not (is_number(limit) and 0 < limit < math.inf):
        return NoMatch(f"the gate is clipped at {limit}; the kernel takes positive numbers")
    if (lower, upper) != (-limit, limit):
        return NoMatch(
            f"the gate is clipped at {limit} and the other part at [{lower}, {upper}]; the kernel "
            "takes one limit"
        )
    return None


def _place_problem(match: Match) -> NoMatch | None:
    """Return why the elements of `x` are not where the kernel looks for them."""
    x, bound = match.tensor("x"), match.bound
    if x.dim() < 2 or not is_dense(x):
        return NoMatch(
            f"`x` has shape {list(x.shape)} and strides {list(x.stride())}; the kernel takes "
            "contiguous tensors of 2 dimensions or more"
        )
    for name in ("cat_dim", "halved_dim"):
        if bound.get(name, -1) not in {-1, x.dim() - 1}:
            return NoMatch(f"the parts are joined or halved along dimension {bound[name]}")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    fused = build.call(
        "npu::npu_clipped_swiglu",
        bound["x"],
        dim=-1,
        alpha=bound.get("alpha", 1.0),
        limit=bound["limit"],
        bias=bound.get("bias", 0.0),
        interleaved="next_start" in bound,
        val=match.value("y"),
    )
    return {"y": fused}


def fuse_clipped_swiglu(*, soc: str = "") -> Rule:
    """Return the rule that fuses SwiGLU of a clipped gate and up into `npu_clipped_swiglu`.

    It computes `gate * sigmoid(gate * alpha) * (up + bias)`, where `gate` is at most `limit` and
    `up` is between `-limit` and `limit`. The rule matches this expression (GPT-OSS, MiniMax-M3),
    `silu(gate) * up`, and `npu_swiglu` of both parts concatenated, as vLLM-Ascend writes them. Gate
    and up are the elements at even and odd positions of the last dimension, or its two halves.

    Numerics are `rounding`: the kernel rounds its result only. The operators also round `gate *
    alpha`, its sigmoid, the product with the gate, and `up + bias`. Source of the table:
    aclnnClippedSwiglu accepts contiguous tensors of float16, bfloat16 and float32 on Atlas A2 and
    A3.

    Args:
        soc: Name of the device as returned by `torch.npu.get_device_name()`; empty for any.
    """
    return Rule(
        name="fuse_clipped_swiglu",
        patterns=_PATTERNS,
        check=partial(_check, soc=soc),
        rewrite=_rewrite,
        operators=("npu::npu_clipped_swiglu",),
        numerics="rounding",
    )
