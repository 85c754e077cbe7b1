"""Static quantisation of vLLM-Ascend's graphs, on the cheaper side of a gathering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.dialects.vllm_ascend_norms import GATHER, gathered, quantized
from fx_passes.matching.combined_pattern import combine, given
from fx_passes.matching.match import Match, NoMatch
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


_QUANTIZE = "vllm::quantize"
_QINT8 = 12


def _check_gathered(match: Match) -> NoMatch | None:
    x = match.tensor("x")
    if x.dim() < 2:
        return NoMatch(f"`x` has {x.dim()} dimension, along which it is gathered and quantised")
    return None


def _rewrite_gathered(match: Match, build: GraphBuilder) -> dict[str, Node]:
    known = match.tensor("quantized")
    shard = known.new_empty(match.tensor("x").shape)
    own = build.call(_QUANTIZE, *match.arguments("x", "scale", "reciprocal", "offset"), val=shard)
    gathering = match.arguments("gather", "experts")
    return {"quantized": build.call(GATHER, own, *gathering, val=known)}


def _rewrite_quantize(match: Match, build: GraphBuilder) -> dict[str, Node]:
    arguments = (*match.arguments("x", "reciprocal", "offset"), _QINT8, -1)
    value = match.value("quantized")
    return {"quantized": build.call("npu::npu_quantize", *arguments, div_mode=False, val=value)}


def quantize_rules() -> tuple[Rule, ...]:
    """Return the rules for `vllm::quantize` that no norm takes in."""
    return (
        Rule(
            name="vllm_ascend_gathered_quantize",
            patterns=(combine(given, gathered, quantized),),
            check=_check_gathered,
            rewrite=_rewrite_gathered,
            operators=(_QUANTIZE, GATHER),
        ),
        Rule(
            name="vllm_ascend_quantize",
            patterns=(combine(given, quantized),),
            rewrite=_rewrite_quantize,
            operators=(_QUANTIZE, "npu::npu_quantize"),
        ),
    )
