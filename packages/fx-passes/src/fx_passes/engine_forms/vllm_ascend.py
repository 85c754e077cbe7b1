"""Operators of vLLM and vLLM-Ascend, rewritten into those that the fusions know."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.norms.add_rms_norm_quant import kernel_operands, static_quant_problem
from fx_passes.fusions.norms.residual_norm import norm_problem
from fx_passes.fusions.quantized import is_int8
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["vllm_ascend_forms"]

_NORM = ("_C_ascend::npu_add_rms_norm_bias", "npu::npu_add_rms_norm")
_QUANTIZE = ("vllm::quantize", "npu::npu_quantize")
_QINT8 = 12
_NO_GROUPS: Mapping[str, str] = MappingProxyType({})


def _norm_quantize(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    beta: Tensor | None,
    epsilon: float,
    scale: Tensor,
    reciprocal: Tensor,
    offset: Tensor,
) -> dict[str, Tensor]:
    norms = torch.ops._C_ascend  # noqa: SLF001 - the name of the namespace
    added = label(norms.npu_add_rms_norm_bias(x, residual, weight, beta, epsilon), "total_source")
    quantized = torch.ops.vllm.quantize(added[0], scale, reciprocal, offset)
    return {"quantized": quantized, "total": added[2]}


def _norm(
    x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor | None, epsilon: float
) -> dict[str, Tensor]:
    norms = torch.ops._C_ascend  # noqa: SLF001 - the name of the namespace
    added = label(norms.npu_add_rms_norm_bias(x, residual, weight, beta, epsilon), "added")
    return {"normed": added[0], "rstd": added[1], "total": added[2]}


def _quantize(x: Tensor, scale: Tensor, reciprocal: Tensor, offset: Tensor) -> dict[str, Tensor]:
    return {"quantized": torch.ops.vllm.quantize(x, scale, reciprocal, offset)}


def _all_reduce(x: Tensor, group: str) -> dict[str, Tensor]:
    return {"reduced": torch.ops.vllm.all_reduce(x, group)}


def _build_norm(match: Match, build: GraphBuilder, values: object) -> tuple[Node, Node]:
    """Return the call of the norm, and the normalised sum with the bias where there is one."""
    bound = match.bound
    added = build.call(
        "npu::npu_add_rms_norm",
        bound["x"],
        bound["residual"],
        bound["weight"],
        bound["epsilon"],
        val=values,
    )
    normed = build.element(added, 0)
    if isinstance(bound["beta"], Node):
        value = normed.meta.get("val")
        normed = build.call("aten::add.Tensor", normed, bound["beta"], val=value)
    return added, normed


def _rewrite_norm_quantize(match: Match, build: GraphBuilder) -> dict[str, Node]:
    scale, offset = kernel_operands(match, match.bound["scale"], build)
    added, normed = _build_norm(match, build, match.value("total_source"))
    quantized = build.call(
        "npu::npu_quantize", normed, scale, offset, _QINT8, -1, val=match.value("quantized")
    )
    return {"quantized": quantized, **build.elements(added, {"total": 2})}


def _check_norm(match: Match, *, process_groups: Mapping[str, str]) -> NoMatch | None:
    """Return why a norm is better left as it is: a bias that nothing takes in is an operator more.

    It is taken in by a quantisation that is the only one to use the norm, or where an all-reduce
    before it is moved behind a norm of shards.
    """
    normed = match.outputs.get("normed")
    if match.bound["beta"] is None or normed is None:
        return None
    if any(_is_reduced(match.bound[name], process_groups) for name in ("x", "residual")):
        return None
    problem = norm_problem(match)
    if problem is not None:
        return problem
    users = list(normed.users)
    if len(users) == 1 and _quantises_to_int8_or_blocks(users[0]):
        return None
    return NoMatch("the norm has a bias, and no quantisation behind it with which it is fused")


def _is_reduced(value: object, process_groups: Mapping[str, str]) -> bool:
    if not isinstance(value, Node):
        return False
    target = str(value.target)
    if target == "_c10d_functional.wait_tensor.default":
        return True
    return target == "vllm.all_reduce.default" and value.args[1] in process_groups


def _quantises_to_int8_or_blocks(node: Node) -> bool:
    target = str(node.target)
    if target == "npu.npu_dynamic_mx_quant.default":
        return True
    if target != "npu.npu_dynamic_quant.default":
        return False
    known = {"smooth_scales", "dst_type"}
    return node.kwargs.keys() <= known and is_int8(node.kwargs.get("dst_type"))


def _rewrite_norm(match: Match, build: GraphBuilder) -> dict[str, Node]:
    added, normed = _build_norm(match, build, match.value("added"))
    others = build.elements(added, {"rstd": 1, "total": 2})
    return {"normed": normed, **others} if "normed" in match.needed else others


def _rewrite_quantize(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, value = match.bound, match.value("quantized")
    call = partial(build.call, "npu::npu_quantize", bound["x"], bound["reciprocal"])
    return {"quantized": call(bound["offset"], _QINT8, -1, div_mode=False, val=value)}


def _check_all_reduce(match: Match, *, process_groups: Mapping[str, str]) -> NoMatch | None:
    if match.bound["group"] in process_groups:
        return None
    known = ", ".join(map(repr, process_groups)) or "none"
    return NoMatch(
        f"the process group of {match.bound['group']!r} is not known; those given are of: {known}"
    )


def _rewrite_all_reduce(
    match: Match, build: GraphBuilder, *, process_groups: Mapping[str, str]
) -> dict[str, Node]:
    group, value = match.bound["group"], match.value("reduced")
    if not isinstance(group, str):
        raise RuleError("rewriting vllm::all_reduce: the match was not checked")
    name = process_groups[group]
    started = build.call("_c10d_functional::all_reduce", match.bound["x"], "sum", name, val=value)
    return {"reduced": build.call("_c10d_functional::wait_tensor", started, val=value)}


def vllm_ascend_forms(process_groups: Mapping[str, str] = _NO_GROUPS) -> tuple[Rule, ...]:
    """Return the rules that bring graphs of vLLM-Ascend into the form that the fusions match.

    For a pass between `NormalizePass` and the fusions. The operators need not exist: a rule whose
    operators the process does not have is not tried. In the order in which they are tried:

    - `vllm_ascend_norm_quantize`: `_C_ascend::npu_add_rms_norm_bias` and `vllm::quantize`, where
      `fuse_add_rms_norm_quant` can fuse them: `npu_add_rms_norm`, the addition of the bias where
      there is one, and `npu_quantize` that divides by the scale. The scale is an argument of
      `vllm::quantize` beside its reciprocal, so nothing is inverted. Rounding.
    - `vllm_ascend_norm`: `_C_ascend::npu_add_rms_norm_bias` elsewhere, with a bias only where a
      dynamic quantisation takes it in or the norm moves behind a reduce-scatter; else it would be
      two operators. Rounding: the bias is added to what has been rounded.
    - `vllm_ascend_quantize`: `vllm::quantize` elsewhere, to the `npu_quantize` by the reciprocal
      that vLLM-Ascend implements it with. Exact.
    - `vllm_ascend_all_reduce`: `vllm::all_reduce` to the functional collective. Rounding, because
      the engine may add up in another order.

    Args:
        process_groups: For each group whose all-reduces are rewritten its name in the engine
            (`GroupCoordinator.unique_name`, such as `tp:0`), and the name of its process group as
            functional collectives and `ParallelGroup` take it (`device_group.group_name`). Worth it
            for the rules for tensor parallelism only; left out, all-reduces stay as they are.
    """
    groups = dict(process_groups)
    return (
        Rule(
            name="vllm_ascend_norm_quantize",
            patterns=(_norm_quantize,),
            check=static_quant_problem,
            rewrite=_rewrite_norm_quantize,
            operators=(*_NORM, *_QUANTIZE),
            numerics="rounding",
        ),
        Rule(
            name="vllm_ascend_norm",
            patterns=(_norm,),
            check=partial(_check_norm, process_groups=groups),
            rewrite=_rewrite_norm,
            operators=_NORM,
            numerics="rounding",
        ),
        Rule(
            name="vllm_ascend_quantize",
            patterns=(_quantize,),
            rewrite=_rewrite_quantize,
            operators=_QUANTIZE,
        ),
        Rule(
            name="vllm_ascend_all_reduce",
            patterns=(_all_reduce,),
            check=partial(_check_all_reduce, process_groups=groups),
            rewrite=partial(_rewrite_all_reduce, process_groups=groups),
            operators=(
                "vllm::all_reduce",
                "_c10d_functional::all_reduce",
                "_c10d_functional::wait_tensor",
            ),
            numerics="rounding",
        ),
    )
