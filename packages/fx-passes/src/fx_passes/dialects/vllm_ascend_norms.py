"""Fuses norms and quantisation in vLLM-Ascend's graphs into the kernels that do both.

With sequence parallelism, `vllm::maybe_all_gather_and_maybe_unpad` is between norm and
quantisation. Its effect depends on the engine's state at each call: it returns its input, or
gathers the rows of all ranks and drops padding rows. In every state it moves whole
rows and does not change them. All quantisations here process rows independently, so they give
the same bits before it, where the norm can be fused with them and there is less to gather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.fusions.norms.add_rms_norm_dynamic_quant import (
    build_dynamic_quant,
    dynamic_quant_problem,
)
from fx_passes.fusions.norms.add_rms_norm_quant import build_static_quant, static_quant_problem
from fx_passes.fusions.norms.residual_norm import alone, joined
from fx_passes.fusions.norms.rms_norm_mx_quant import (
    ADD_KERNEL,
    KERNEL,
    build_norm_mx,
    norm_mx_problem,
)
from fx_passes.fusions.quantized import MX_QUANTIZE, mx_quantized, row_quantized
from fx_passes.matching.combined_pattern import combine, given
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Check, Pattern


_GATHER = "vllm::maybe_all_gather_and_maybe_unpad"
_NORM = "_C_ascend::npu_add_rms_norm_bias"
_QUANTIZE = "vllm::quantize"
_QINT8 = 12
_REDUCED = ("vllm.all_reduce.default", "_c10d_functional.wait_tensor.default")


def _engine_norm(
    x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor | None, epsilon: float
) -> Linked:
    norms = torch.ops._C_ascend  # noqa: SLF001 - the name of the namespace
    added = label(norms.npu_add_rms_norm_bias(x, residual, weight, beta, epsilon), "total_source")
    return added[0], {"total": added[2]}


def _gathered(rows: Tensor, gather: bool, experts: bool) -> Linked:
    """Gather rows in a pattern; a link of `combine`."""
    return torch.ops.vllm.maybe_all_gather_and_maybe_unpad(rows, gather, experts), {}


def _quantized(rows: Tensor, scale: Tensor, reciprocal: Tensor, offset: Tensor) -> Linked:
    """Quantise by given scales in a pattern, as the engine writes it; a link of `combine`."""
    return None, {"quantized": torch.ops.vllm.quantize(rows, scale, reciprocal, offset)}


def _two_static(
    rows: Tensor,
    scale: Tensor,
    reciprocal: Tensor,
    offset: Tensor,
    scale2: Tensor,
    reciprocal2: Tensor,
    offset2: Tensor,
) -> Linked:
    quantize = torch.ops.vllm.quantize
    first = quantize(rows, scale, reciprocal, offset)
    return None, {"quantized": first, "second": quantize(rows, scale2, reciprocal2, offset2)}


def _gathering_problem(match: Match) -> NoMatch | None:
    dimensions = match.tensor("x").dim()
    if "gather" in match.bound and dimensions < 2:
        return NoMatch(f"`x` has {dimensions} dimension, along which it is gathered and quantised")
    return None


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """A quantisation after a norm, and the kernel that does both.

    Attributes:
        name: Its part of rule names.
        closing: The quantisation in the pattern.
        check: Returns why the kernel does not support a match.
        kernel: Builds the call, from fake values of the quantised tensor and of the scales if any.
        results: Maps each output to a result of the call.
        operators: Operators that must exist in addition to norm and gathering.
    """

    name: str
    closing: Link
    check: Check
    kernel: Callable[..., Node]
    results: Mapping[str, int]
    operators: tuple[str, ...]

    def rule(self, name: str, patterns: tuple[Pattern, ...], norm: str) -> Rule:
        """Return the rule for this ending after a norm in some patterns."""
        return Rule(
            name=f"vllm_ascend_{name}_{self.name}",
            patterns=patterns,
            check=self._problem,
            rewrite=self._rewrite,
            operators=(norm, _GATHER, *self.operators),
            numerics="rounding",
        )

    def _problem(self, match: Match) -> NoMatch | None:
        return _gathering_problem(match) or self.check(match)

    def _rewrite(self, match: Match, build: GraphBuilder) -> dict[str, Node]:
        """Build the kernel, and the gathering of its results if the match gathers."""
        bound, rows, results = match.bound, match.tensor("x").shape[0], self.results
        if "quant" in match.labels:
            values = match.results("quant")
        else:
            values = tuple(
                match.tensor(each) for each in ("quantized", "second") if each in results
            )
        # On this side of the gathering there are as many rows as in `x`.
        shards = [value.new_empty((rows, *value.shape[1:])) for value in values]
        fused = self.kernel(match, build, *shards)
        moved = dict(zip((name for name in results if name != "total"), values, strict=True))
        replaced = {}
        for name in (name for name in results if name in match.needed):
            node = build.element(fused, results[name])
            if "gather" in bound and name in moved:
                node = build.call(_GATHER, node, bound["gather"], bound["experts"], val=moved[name])
            replaced[name] = node
        return replaced


def _norm(
    x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor | None, epsilon: float
) -> dict[str, Tensor]:
    norms = torch.ops._C_ascend  # noqa: SLF001 - the name of the namespace
    added = label(norms.npu_add_rms_norm_bias(x, residual, weight, beta, epsilon), "added")
    return {"normed": added[0], "rstd": added[1], "total": added[2]}


def _check_norm(match: Match, *, groups: frozenset[str]) -> NoMatch | None:
    """Return why a norm is better left unchanged: a bias that is not fused is one more operator.

    If an all-reduce before it is moved after a norm of shards, it is worth it.
    """
    if match.bound["beta"] is None or "normed" not in match.outputs:
        return None
    if any(_is_reduced(match.bound[name], groups) for name in ("x", "residual")):
        return None
    return NoMatch("the norm has a bias, and no quantisation after it with which it is fused")


def _is_reduced(value: object, groups: frozenset[str]) -> bool:
    if not isinstance(value, Node) or str(value.target) not in _REDUCED:
        return False
    return "wait" in str(value.target) or value.args[1] in groups


def _rewrite_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    arguments = match.arguments("x", "residual", "weight", "epsilon")
    added = build.call("npu::npu_add_rms_norm", *arguments, val=match.value("added"))
    replaced = build.elements(added, {"rstd": 1, "total": 2})
    if "normed" in match.needed:
        normed = build.element(added, 0)
        if isinstance(beta := match.bound["beta"], Node):
            normed = build.call("aten::add.Tensor", normed, beta, val=normed.meta.get("val"))
        replaced["normed"] = normed
    return replaced


_STATIC = _Ending(
    name="quantize",
    closing=_quantized,
    check=static_quant_problem,
    kernel=build_static_quant,
    results=MappingProxyType({"quantized": 0, "total": 2}),
    operators=(_QUANTIZE, "npu::npu_add_rms_norm_quant"),
)
_TWO_STATIC = replace(
    _STATIC,
    name="two_quantize",
    closing=_two_static,
    results=MappingProxyType({"quantized": 0, "second": 1, "total": 2}),
)
_DYNAMIC = _Ending(
    name="dynamic_quant",
    closing=row_quantized,
    check=dynamic_quant_problem,
    kernel=build_dynamic_quant,
    results=MappingProxyType({"quantized": 0, "scale": 3, "total": 2}),
    operators=("npu::npu_dynamic_quant", "npu::npu_add_rms_norm_dynamic_quant"),
)
_MX = _Ending(
    name="mx_quant",
    closing=mx_quantized,
    check=norm_mx_problem,
    kernel=build_norm_mx,
    results=MappingProxyType({"quantized": 0, "scale": 2, "total": 1}),
    operators=(MX_QUANTIZE, ADD_KERNEL),
)
_FIRST_MX = replace(
    _MX, results=MappingProxyType({"quantized": 0, "scale": 1}), operators=(MX_QUANTIZE, KERNEL)
)


def norm_rules(groups: frozenset[str]) -> tuple[Rule, ...]:
    """Return the rules for norms, those with a quantisation after them first.

    Args:
        groups: The engine's names of groups whose all-reduces are rewritten too.
    """
    rules: list[Rule] = []
    for ending in (_TWO_STATIC, _STATIC, _DYNAMIC, _MX):
        closing = ending.closing
        own = (combine(_engine_norm, closing), combine(_engine_norm, _gathered, closing))
        rules.append(ending.rule("norm", own, _NORM))
        # The form if vLLM-Ascend runs without operators of its own.
        plain = [combine(joined, _gathered, closing)]
        if _QUANTIZE in ending.operators:
            # Other quantisations after such a norm are no words of the engine.
            plain.append(combine(joined, closing))
        rules.append(ending.rule("plain_norm", tuple(plain), "npu::npu_add_rms_norm"))
    first = (combine(alone, _gathered, mx_quantized),)
    rules.append(_FIRST_MX.rule("gathered_first_norm", first, "npu::npu_rms_norm"))
    rules.append(
        Rule(
            name="vllm_ascend_norm",
            patterns=(_norm,),
            check=partial(_check_norm, groups=groups),
            rewrite=_rewrite_norm,
            operators=(_NORM, "npu::npu_add_rms_norm"),
            numerics="rounding",
            # `_check_norm` says when a bias is worth it.
            accepts_cost=True,
        )
    )
    return tuple(rules)


def _rewrite_gathered(match: Match, build: GraphBuilder) -> dict[str, Node]:
    known = match.tensor("quantized")
    shard = known.new_empty(match.tensor("x").shape)
    own = build.call(_QUANTIZE, *match.arguments("x", "scale", "reciprocal", "offset"), val=shard)
    gathering = match.arguments("gather", "experts")
    return {"quantized": build.call(_GATHER, own, *gathering, val=known)}


def _rewrite_quantize(match: Match, build: GraphBuilder) -> dict[str, Node]:
    arguments = (*match.arguments("x", "reciprocal", "offset"), _QINT8, -1)
    value = match.value("quantized")
    return {"quantized": build.call("npu::npu_quantize", *arguments, div_mode=False, val=value)}


def quantize_rules() -> tuple[Rule, ...]:
    """Return the rules for `vllm::quantize` that no norm takes in."""
    return (
        Rule(
            name="vllm_ascend_gathered_quantize",
            patterns=(combine(given, _gathered, _quantized),),
            check=_gathering_problem,
            rewrite=_rewrite_gathered,
            operators=(_QUANTIZE, _GATHER),
        ),
        Rule(
            name="vllm_ascend_quantize",
            patterns=(combine(given, _quantized),),
            rewrite=_rewrite_quantize,
            operators=(_QUANTIZE, "npu::npu_quantize"),
        ),
    )
