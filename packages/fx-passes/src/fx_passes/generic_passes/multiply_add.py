"""A product and a sum, fused into one operator of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import dtype_in, is_dense, is_number, on_npu, same_dtype
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


def _by_number(x: Tensor, factor: float, addend: Tensor) -> dict[str, Tensor]:
    return {"y": x * factor + addend}


def _by_tensor(x: Tensor, factor: Tensor, addend: Tensor) -> dict[str, Tensor]:
    return {"y": x * factor + addend}


def _check(match: Match) -> NoMatch | None:
    factor = match.value("factor")
    tensors = ["x", "addend", "y"]
    if isinstance(factor, torch.Tensor):
        tensors.append("factor")
    elif not is_number(factor):
        return NoMatch(f"the factor is {factor}; it must be a number or a tensor")
    return (
        on_npu(match, *tensors)
        or dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or same_dtype(match, *tensors)
    )


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, y = match.bound, match.value("y")
    if isinstance(y, torch.Tensor) and not is_dense(y):
        # Whatever the operands are, the kernels give contiguous results.
        y = y.new_empty(y.shape)
    if isinstance(match.value("factor"), torch.Tensor):
        arguments = match.arguments("addend", "x", "factor")
        return {"y": build.call("aten::addcmul", *arguments, val=y)}
    scaled = {"alpha": bound["factor"]}
    return {"y": build.call("aten::add.Tensor", bound["addend"], bound["x"], **scaled, val=y)}


def fuse_multiply_add() -> Rule:
    """Return the rule `x * factor + addend` to one operator.

    A number becomes `alpha` of `add`, as for DeepSeek's routed experts, which are scaled before the
    shared experts are added; a tensor makes `addcmul`. All tensors of one floating-point dtype;
    both orders of the product and of the sum; shapes broadcast as before.

    Both operators of torch have one kernel on an NPU, so no operator of an engine's own is needed.
    They round once where the two operators round twice: the numerics are `rounding`.
    """
    return Rule(
        name="fuse_multiply_add",
        patterns=(_by_number, _by_tensor),
        check=_check,
        rewrite=_rewrite,
        numerics="rounding",
    )
