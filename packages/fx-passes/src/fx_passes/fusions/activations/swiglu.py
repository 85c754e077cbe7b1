"""`silu(gate) * up` of two halves of one tensor, fused into `npu::npu_swiglu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.gated_halves import halves_patterns, halves_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _silu(gate: Tensor) -> Tensor:
    activated: Tensor = torch.ops.aten.silu(gate)
    return activated


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("npu::npu_swiglu", match.bound["x"], -1, val=match.value("y"))}


def fuse_swiglu() -> Rule:
    """Return the rule `silu(gate) * up` to `npu_swiglu`.

    Gate and up are the first and second half of the last dimension of one tensor, by `chunk`,
    `split` or slices; both orders of the product. The two operators round silu's result to the
    tensor's dtype before the product, the fused kernel rounds once: the numerics are `rounding`,
    with a relative difference of at most one unit in the last place of the dtype or so.
    Source of the dtype table: aclnnSwiGlu takes float16, bfloat16 and float32.
    """
    return Rule(
        name="fuse_swiglu",
        patterns=halves_patterns(_silu),
        check=halves_problem,
        rewrite=_rewrite,
        operators=("npu::npu_swiglu",),
        numerics="rounding",
    )
