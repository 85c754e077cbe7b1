"""`activation(gate) * up`, gate and up the halves of one tensor, fused into one operator."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.halves import HALVES, Parts, slices_problem
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import dtype_in, on_npu, shapes_equal
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# What `npu_geglu` calls the error function and the hyperbolic tangent.
_FORMS = MappingProxyType({"none": 0, "tanh": 1})


def silu_gated(parts: Parts) -> Linked:
    """Apply SiLU to a gate in a pattern; a link of `combine`."""
    _, gate, up = parts
    return None, {"y": torch.ops.aten.silu(gate) * up}


def gelu_gated(parts: Parts, approximate: str) -> Linked:
    """Apply GELU to a gate in a pattern; a link of `combine`."""
    _, gate, up = parts
    return None, {"y": torch.ops.aten.gelu(gate, approximate=approximate) * up}


def form_problem(match: Match) -> NoMatch | None:
    """Return why the kernel has no GELU with the `approximate` of a match; None also for SiLU."""
    form = match.bound.get("approximate", "none")
    return None if form in _FORMS else NoMatch(f"approximate {form!r} is not known")


def build_gated(match: Match, build: GraphBuilder, x: object, y: object) -> dict[str, Node]:
    """Return the call of the kernel for a value whose halves are gate and up."""
    if "approximate" not in match.bound:
        return {"y": build.call("npu::npu_swiglu", x, -1, val=y)}
    form = _FORMS[str(match.bound["approximate"])]
    fused = build.call("npu::npu_geglu", x, -1, form, True, val=(y, y))
    return build.elements(fused, {"y": 0})


def halves_problem(match: Match) -> NoMatch | None:
    """Return why gate and up are not the two halves of the last dimension, on an NPU."""
    return (
        on_npu(match, "x")
        or dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or _cut_problem(match)
    )


def _cut_problem(match: Match) -> NoMatch | None:
    x, y = match.tensor("x"), match.tensor("y")
    bound = match.bound
    if bound["dim"] not in {-1, x.dim() - 1}:
        return NoMatch(f"the halves are along dimension {bound['dim']} of {x.dim()}, not the last")
    size, half = x.shape[-1], y.shape[-1]
    if not all(isinstance(each, int) for each in (size, half)):
        return NoMatch(f"the last dimension must be a number, found {size} and {half}")
    if 2 * half != size or not shapes_equal(x.shape[:-1], y.shape[:-1]):
        return NoMatch(f"{list(y.shape)} is not half of {list(x.shape)}")
    return slices_problem(bound, size)


def _check(match: Match) -> NoMatch | None:
    return form_problem(match) or halves_problem(match)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    return build_gated(match, build, match.bound["x"], match.value("y"))


def fuse_swiglu() -> Rule:
    """Return the rule `silu(gate) * up` to `npu_swiglu`.

    Gate and up are the first and second half of the last dimension of one tensor, by `chunk`,
    `split` or slices; both orders of the product. The two operators round silu's result to the
    tensor's dtype before the product, the fused kernel rounds once: the numerics are `rounding`,
    with a relative difference of at most one unit in the last place of the dtype or so.
    Source of the dtype table: aclnnSwiGlu takes float16, bfloat16 and float32.
    """
    return _rule("swiglu", silu_gated)


def fuse_geglu() -> Rule:
    """Return the rule `gelu(gate) * up` to `npu_geglu`.

    Gate and up are the first and second half of the last dimension of one tensor, by `chunk`,
    `split` or slices; both orders of the product; GELU by the error function or by the hyperbolic
    tangent, which the kernel is given. `npu_gelu_mul` is not used: it takes up to 1024 elements in
    the last dimension, which no gated layer of a language model keeps to.

    Source of the table: aclnnGeGluV3 takes float16, bfloat16 and float32 on A2, A3 and 950. It
    rounds once where the two operators round twice: the numerics are `rounding`.
    """
    return _rule("geglu", gelu_gated)


def _rule(name: str, gated: Link) -> Rule:
    return Rule(
        name=f"fuse_{name}",
        patterns=tuple(combine(halves, gated) for halves in HALVES),
        check=_check,
        rewrite=_rewrite,
        operators=(f"npu::npu_{name}",),
        numerics="rounding",
    )
