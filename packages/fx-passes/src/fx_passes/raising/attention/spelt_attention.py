"""Attention written as two matrix products around a softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes.matching.combined_pattern import calling, combine, given, result
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import is_number
from fx_passes.raising.attention.attention import heads_problem, mask_problem, seen_mask
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


def _product(query: Tensor, key: Tensor, one: int, other: int) -> Linked:
    return torch.matmul(query, key.transpose(one, other)), {}


def _wide_product(query: Tensor, key: Tensor, one: int, other: int) -> Linked:
    """Of GPT-J and CodeGen, which compute the scores in float32."""
    transposed = key.to(torch.float32).transpose(one, other)
    return torch.matmul(query.to(torch.float32), transposed), {}


aten = torch.ops.aten
_scaled = calling(aten.mul.Tensor, scale="float")
_divided = calling(aten.div.Tensor, divisor="float")
_masked = calling(aten.add.Tensor, mask="Tensor")


def _less_the_largest(scores: Tensor, max_dim: int) -> Linked:
    """Of MiMo and GPT-OSS; the softmax is the same."""
    largest = torch.ops.aten.max.dim(scores, max_dim, True)[0]
    return scores - largest, {}


attended = calling(aten.softmax.int, softmax_dim="int", softmax_dtype="dtype | None")
"""Turns scores into weights in a pattern."""

_rounded = calling(aten.to.dtype, weight_dtype="dtype")
_dropped = calling(aten.dropout.default, probability="float", training="bool")
_summed = calling(aten.matmul.default, value="Tensor")

SCORES = tuple(
    (product, scale, mask)
    for product in (_product, _wide_product)
    for scale in (_scaled, _divided, given)
    for mask in (_masked, given)
)
"""Links of patterns, from queries and keys to masked scores."""

SHIFTS = (given, _less_the_largest)
"""Links of patterns, from masked scores to what the softmax is of."""

WEIGHTS = tuple(
    (*between, _summed, result)
    for between in (
        (),
        (_rounded,),
        (_dropped,),
        (_rounded, _dropped),
        (_dropped, _rounded),
    )
)
"""Links of patterns, from the weights to the output `y`."""

_PATTERNS = tuple(
    combine(*scores, shift, attended, *weights)
    for scores in SCORES
    for shift in SHIFTS
    for weights in WEIGHTS
)


def _check(match: Match) -> NoMatch | None:
    return (
        heads_problem(match)
        or spelling_problem(match)
        or mask_problem(match)
        or layout_problem(match, "y")
    )


def spelling_problem(match: Match) -> NoMatch | None:
    """Return why products and softmax are not along the dimensions of attention."""
    query, y = match.tensor("query"), match.tensor("y")
    bound, rank = match.bound, query.dim()
    if {_position(bound[name], rank) for name in ("one", "other")} != {rank - 2, rank - 1}:
        return NoMatch(
            f"dimensions {bound['one']} and {bound['other']} of `key` are exchanged; expected the "
            "last two"
        )
    if y.dtype != query.dtype:
        return NoMatch(f"the result has dtype {y.dtype} and `query` {query.dtype}")
    return _softmax_problem(match, query) or _dropout_problem(match) or _scale_problem(match)


def _softmax_problem(match: Match, query: Tensor) -> NoMatch | None:
    bound, rank = match.bound, query.dim()
    for name, what in (("softmax_dim", "softmax"), ("max_dim", "largest score")):
        if _position(bound.get(name, -1), rank) != rank - 1:
            return NoMatch(f"the {what} is over dimension {bound[name]}, not the last one")
    if bound["softmax_dtype"] not in {None, torch.float32, query.dtype}:
        return NoMatch(f"the softmax is computed in {bound['softmax_dtype']}")
    return None


def _dropout_problem(match: Match) -> NoMatch | None:
    bound = match.bound
    if bound.get("training", False) not in {True, False}:
        return NoMatch("whether weights are dropped must be known when the graph is compiled")
    if bound.get("training", False) and bound["probability"] != 0:
        return NoMatch(f"weights are dropped with probability {bound['probability']}")
    return None


def _position(dim: object, rank: int) -> object:
    return dim % rank if isinstance(dim, int) else dim


def _scale_problem(match: Match) -> NoMatch | None:
    for name in ("scale", "divisor"):
        number = match.bound.get(name, 1.0)
        if not is_number(number) or number == 0:
            return NoMatch(f"the scores are scaled by {number}; the kernel takes a number")
    return None


def scale_of(match: Match) -> float:
    """Return the factor of the scores of a match."""
    scale: Any = match.bound.get("scale", 1.0)
    divisor: Any = match.bound.get("divisor", 1.0)
    return float(scale / divisor)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    fused = build.call(
        "aten::scaled_dot_product_attention",
        *match.arguments("query", "key", "value"),
        seen_mask(match),
        scale=scale_of(match),
        val=dense_like(match.tensor("y")),
    )
    return {"y": fused}


def spelt_attention() -> Rule:
    """Return the rule `softmax(q @ k.T * scale + mask) @ v` to `scaled_dot_product_attention`.

    This is `attn_implementation="eager"` of transformers. The mask is a bool mask made additive
    by `where(seen, 0, minimum)`; scores, softmax and weights may be in float32. Only matches that
    `raise_attention` supports are rewritten, and that rule must come after this one.

    Kernels round the scores differently: the numerics are `rounding`.
    """
    return Rule(
        name="spelt_attention",
        patterns=_PATTERNS,
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_fused_infer_attention_score",),
        numerics="rounding",
    )
