"""`silu(gate) * up` of two tensors, raised to `npu::npu_swiglu` of both side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.requirements import Requirement, first_unmet
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.graph_builder import GraphBuilder
    from fx_passes.match import Match, NoMatch

__all__ = ["raise_swiglu"]

_REQUIREMENTS = (
    Requirement.on_npu("gate"),
    Requirement.dtype_in("gate", torch.bfloat16, torch.float16, torch.float32),
    Requirement.same_dtype("gate", "up"),
    Requirement.same_shape("gate", "up"),
)


def _pattern(gate: Tensor, up: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.silu(gate) * up}


def _check(match: Match) -> NoMatch | None:
    return first_unmet(match, *_REQUIREMENTS) or layout_problem(match, "y")


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    gate, up = match.bound["gate"], match.bound["up"]
    y = match.value("y")
    known = dense_like(y) if isinstance(y, torch.Tensor) else None
    both = build.call("aten::cat", [gate, up], -1)
    return {"y": build.call("npu::npu_swiglu", both, -1, val=known)}


def raise_swiglu() -> Rule:
    """Return the rule `silu(gate) * up` to `npu_swiglu(cat(gate, up))`.

    For gate and up of two projections, as `transformers` has them; of two halves of one tensor
    `fuse_swiglu` makes a better thing and must come first. The concatenation copies both: with I
    elements in each, the two torch operators move 5 I elements and these two move 7 I, in the same
    number of launches. That pays where something fuses with `npu_swiglu`, or where launches cost
    more than bytes as in decoding; else leave the rule out (`pipeline.without("raise_swiglu")`).
    Merging the weights of both projections once, which takes the copy away, needs the weights'
    memory and its owner's consent, and is not done here.

    silu's result is rounded to the dtype before the product, in the kernel it is not: the numerics
    are `rounding`. Source of the dtype table: aclnnSwiGlu takes float16, bfloat16 and float32.
    """
    return Rule(
        name="raise_swiglu",
        patterns=(_pattern,),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_swiglu",),
        numerics="rounding",
    )
