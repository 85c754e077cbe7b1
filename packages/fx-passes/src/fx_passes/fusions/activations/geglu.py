"""`gelu(gate) * up` of two halves of one tensor, fused into `npu::npu_geglu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.activations.gated_halves import halves_patterns, halves_problem
from fx_passes.matching.pattern import label
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


ERROR_FUNCTION = 0
"""`approximate` of `npu_geglu` for GELU by the error function, `approximate="none"` in torch."""
TANH = 1
"""`approximate` of `npu_geglu` for GELU by the hyperbolic tangent."""


def _exact(gate: Tensor) -> Tensor:
    activated: Tensor = torch.ops.aten.gelu(gate)
    return label(activated, "error_function")


def _tanh(gate: Tensor) -> Tensor:
    activated: Tensor = torch.ops.aten.gelu(gate, approximate="tanh")
    return activated


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    y = match.value("y")
    form = ERROR_FUNCTION if "error_function" in match.labels else TANH
    fused = build.call("npu::npu_geglu", match.bound["x"], -1, form, True, val=(y, y))
    return build.elements(fused, {"y": 0})


def fuse_geglu() -> Rule:
    """Return the rule `gelu(gate) * up` to `npu_geglu`.

    Gate and up are the first and second half of the last dimension of one tensor, by `chunk`,
    `split` or slices; both orders of the product; GELU by the error function or by the hyperbolic
    tangent, which the kernel is given. `npu_gelu_mul` is not used: it takes up to 1024 elements in
    the last dimension, which no gated layer of a language model keeps to.

    Source of the table: aclnnGeGluV3 takes float16, bfloat16 and float32 on A2, A3 and 950. It
    rounds once where the two operators round twice: the numerics are `rounding`.
    """
    return Rule(
        name="fuse_geglu",
        patterns=(*halves_patterns(_tanh), *halves_patterns(_exact)),
        check=halves_problem,
        rewrite=_rewrite,
        operators=("npu::npu_geglu",),
        numerics="rounding",
    )
