"""`silu(gate) * up` of two tensors, raised to `npu::npu_swiglu` of both side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.raising.activations.gated_pair import pair_problem, side_by_side
from fx_passes.raising.memory_layout import dense_like
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _pattern(gate: Tensor, up: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.silu(gate) * up}


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    known = dense_like(match.tensor("y"))
    return {"y": build.call("npu::npu_swiglu", side_by_side(match, build), -1, val=known)}


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
        accepts_cost=True,
        name="raise_swiglu",
        patterns=(_pattern,),
        check=pair_problem,
        rewrite=_rewrite,
        operators=("npu::npu_swiglu",),
        numerics="rounding",
    )
