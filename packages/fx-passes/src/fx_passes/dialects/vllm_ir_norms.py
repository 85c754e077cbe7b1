"""Rewrites the norms of vLLM's own operators, `vllm_ir`, into those of the NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import same_dtype
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


def _norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> dict[str, Tensor]:
    return {"normed": torch.ops.vllm_ir.rms_norm(x, weight, epsilon, variance_size)}


def _add_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> dict[str, Tensor]:
    added = torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, epsilon, variance_size)
    added = label(added, "added")
    return {"normed": added[0], "total": added[1]}


def _check(match: Match) -> NoMatch | None:
    """Return why the kernel does not compute this norm."""
    x, weight, part = match.tensor("x"), match.value("weight"), match.bound["variance_size"]
    if not isinstance(weight, torch.Tensor):
        return NoMatch("the norm has no weight, which the kernel requires")
    if part is not None and part != x.shape[-1]:
        return NoMatch(f"the variance is that of {part} of {x.shape[-1]} columns")
    residual = ("residual",) if "residual" in match.bound else ()
    return same_dtype(match, "x", *residual, "weight")


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    if "residual" in match.bound:
        arguments = match.arguments("x", "residual", "weight", "epsilon")
        added = build.call("npu::npu_add_rms_norm", *arguments)
        return build.elements(added, {"normed": 0, "total": 2})
    normed = build.call("npu::npu_rms_norm", *match.arguments("x", "weight", "epsilon"))
    return {"normed": build.element(normed, 0)}


def ir_norm_rules() -> tuple[Rule, ...]:
    """Return the rules for `vllm_ir::fused_add_rms_norm` and `vllm_ir::rms_norm`."""
    return tuple(
        Rule(
            name=f"vllm_ir_{name}",
            patterns=(pattern,),
            check=_check,
            rewrite=_rewrite,
            operators=(operator, f"npu::npu_{name}"),
            numerics="rounding",
            accepts_cost=True,  # as many launches; the kernel also writes what no graph uses
        )
        for name, pattern, operator in (
            ("add_rms_norm", _add_norm, "vllm_ir::fused_add_rms_norm"),
            ("rms_norm", _norm, "vllm_ir::rms_norm"),
        )
    )
