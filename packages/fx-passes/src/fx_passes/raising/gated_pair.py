"""`activation(gate) * up` of two tensors, raised to an operator on both side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.gated_halves import (
    build_gated,
    form_problem,
    gelu_gated,
    silu_gated,
)
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.requirements import dtype_in, on_npu, same_shape
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _pair(gate: Tensor, up: Tensor) -> Linked:
    return (None, gate, up), {}


def _check(match: Match) -> NoMatch | None:
    return (
        form_problem(match)
        or on_npu(match, "gate")
        or dtype_in(match, "gate", *_DTYPES)
        or dtype_in(match, "up", *_DTYPES)
        or same_shape(match, "gate", "up")
        or layout_problem(match, "y")
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    # If one of them is float32, so is their product, and so is the concatenation.
    joined = build.call("aten::cat", match.arguments("gate", "up"), -1)
    return build_gated(match, build, joined, dense_like(match.tensor("y")))


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
    return _rule("swiglu", silu_gated)


def raise_geglu() -> Rule:
    """Return the rule `gelu(gate) * up` to `npu_geglu(cat(gate, up))`.

    For gate and up of two projections, as Gemma has them, by the error function or the hyperbolic
    tangent; of two halves of one tensor `fuse_geglu` makes a better thing and must come first. What
    `raise_swiglu` says of its concatenation holds here, and the kernel writes the activated gate as
    well, which nobody reads: with I elements in each, the two torch operators move 5 I elements and
    these two move 8 I.

    Source of the table: aclnnGeGluV3 takes float16, bfloat16 and float32. It rounds once: the
    numerics are `rounding`.
    """
    return _rule("geglu", gelu_gated)


def _rule(name: str, gated: Link) -> Rule:
    return Rule(
        accepts_cost=True,
        name=f"raise_{name}",
        patterns=(combine(_pair, gated),),
        check=_check,
        rewrite=_rewrite,
        operators=(f"npu::npu_{name}",),
        numerics="rounding",
    )
