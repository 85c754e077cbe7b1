"""`gelu(gate) * up` of two tensors, raised to `npu::npu_geglu` of both side by side."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.geglu import ERROR_FUNCTION, TANH
from fx_passes.matching.match import NoMatch
from fx_passes.raising.activations.gated_pair import pair_problem, side_by_side
from fx_passes.raising.memory_layout import dense_like
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


_FORMS = MappingProxyType({"none": ERROR_FUNCTION, "tanh": TANH})


def _pattern(gate: Tensor, up: Tensor, approximate: str) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.gelu(gate, approximate=approximate) * up}


def _check(match: Match) -> NoMatch | None:
    if match.bound["approximate"] not in _FORMS:
        return NoMatch(f"approximate {match.bound['approximate']!r} is not known")
    return pair_problem(match)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    known = dense_like(match.tensor("y"))
    form = _FORMS[str(match.bound["approximate"])]
    fused = build.call(
        "npu::npu_geglu",
        side_by_side(match, build),
        -1,
        form,
        True,
        val=(known, known),
    )
    return build.elements(fused, {"y": 0})


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
    return Rule(
        accepts_cost=True,
        name="raise_geglu",
        patterns=(_pattern,),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_geglu",),
        numerics="rounding",
    )
