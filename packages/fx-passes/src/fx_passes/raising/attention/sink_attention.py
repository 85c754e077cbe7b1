"""Attention with a learnable sink for each head, which takes weight and adds no value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import dtype_in, rank_is, sizes_equal
from fx_passes.raising.attention.attention import dense, heads_problem, kernel_mask, mask_problem
from fx_passes.raising.attention.spelt_attention import (
    SCORES,
    SHIFTS,
    WEIGHTS,
    attended,
    scale_of,
    spelling_problem,
)
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder


# Batch, heads, queries, size.
_RANK = 4


def _with_sinks(
    scores: Tensor,
    sinks: Tensor,
    column_shape: Sequence[int],
    sizes: Sequence[int],
    cat_dim: int,
) -> Linked:
    reshaped = label(torch.ops.aten.reshape(sinks, column_shape), "column")
    wide = torch.ops.aten.expand(reshaped, sizes)
    return torch.cat([scores, wide], cat_dim), {}


def _without_sinks(weights: Tensor, cut_dim: int, start: int | None, end: int) -> Linked:
    return torch.ops.aten.slice.Tensor(weights, cut_dim, start, end, 1), {}


def _times_the_share_of_keys(
    scores: Tensor,
    sinks: Tensor,
    column_shape: Sequence[int],
    lse_dim: Sequence[int],
    gate_dim: int,
    gate_dtype: torch.dtype,
    softmax_dim: int,
    softmax_dtype: torch.dtype | None,
    weight_dtype: torch.dtype,
    probability: float,
    training: bool,
    value: Tensor,
) -> Linked:
    """Of Granite: the weights without sinks, times `sigmoid(logsumexp(scores) - sink)`."""
    aten = torch.ops.aten
    column = label(aten.reshape(sinks, column_shape), "column")
    share = torch.sigmoid((aten.logsumexp(scores, lse_dim) - column).to(torch.float32))
    weights = aten.softmax.int(scores, softmax_dim, softmax_dtype).to(weight_dtype)
    summed = torch.matmul(aten.dropout(weights, probability, training), value)
    return None, {"y": summed * aten.unsqueeze(share, gate_dim).to(gate_dtype)}


_PATTERNS = (
    *(
        combine(*scores, _with_sinks, shift, attended, _without_sinks, *weights)
        for scores in SCORES
        for shift in SHIFTS
        for weights in WEIGHTS
    ),
    *(combine(*scores, _times_the_share_of_keys) for scores in SCORES),
)


def _check(match: Match) -> NoMatch | None:
    return (
        heads_problem(match)
        or spelling_problem(match)
        or mask_problem(match)
        or _sinks_problem(match)
        or layout_problem(match, "y")
    )


def _sinks_problem(match: Match) -> NoMatch | None:
    unmet = (
        dtype_in(match, "query", torch.bfloat16)
        or dtype_in(match, "sinks", torch.bfloat16)
        or rank_is(match, 1, "sinks")
    )
    if unmet is not None:
        return unmet
    query, key, value, sinks, column = map(
        match.tensor, ("query", "key", "value", "sinks", "column")
    )
    heads = query.shape[1]
    shape = [1, heads, 1] if "gate_dim" in match.bound else [1, heads, 1, 1]
    if not sizes_equal(sinks.shape[0], heads) or list(column.shape) != shape:
        return NoMatch(
            f"`sinks` of shape {list(sinks.shape)} are {list(column.shape)} beside the scores; the "
            f"kernel takes one for each of the {heads} heads"
        )
    if value.shape[-1] != key.shape[-1]:
        return NoMatch(f"heads of {key.shape[-1]} in `key` and {value.shape[-1]} in `value`")
    return _cut_problem(match, key.shape[2])


def _cut_problem(match: Match, keys: int) -> NoMatch | None:
    bound = match.bound
    given = [bound[name] for name in ("cat_dim", "cut_dim", "lse_dim", "gate_dim") if name in bound]
    dims = [list(each) if isinstance(each, (list, tuple)) else [each] for each in given]
    if any(each not in ([-1], [_RANK - 1]) for each in dims):
        return NoMatch(f"sinks are added along the dimensions {dims}, not the last")
    if "start" not in bound:
        return None
    start, end = bound["start"], bound["end"]
    if start not in {None, 0} or end not in {-1, keys}:
        return NoMatch(f"weights [{start}:{end}] are not those without the sink")
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    query, key, y = map(match.tensor, ("query", "key", "y"))
    mask, sparse_mode = kernel_mask(match, build, query)
    fused = build.call(
        "npu::npu_fused_infer_attention_score_v2",
        *(dense(bound[name], build) for name in ("query", "key", "value")),
        atten_mask=mask,
        learnable_sink=bound["sinks"],
        num_query_heads=query.shape[1],
        num_key_value_heads=key.shape[1],
        softmax_scale=scale_of(match),
        input_layout="BNSD",
        sparse_mode=sparse_mode,
        val=(dense_like(y), y.new_empty(0, dtype=torch.float32)),
    )
    return build.elements(fused, {"y": 0})


def raise_sink_attention() -> Rule:
    """Return the rule of attention with sinks to `npu_fused_infer_attention_score_v2`.

    That is how GPT-OSS spells its attention: a column of sinks beside the scores takes part in the
    softmax and is cut off; and Granite: the result is multiplied with the share of the keys. Masks
    and casts are those of `spelt_attention`.

    Source of the dtype: aclnnFusedInferAttentionScoreV4 takes sinks in bfloat16, as the queries.
    Kernels round the scores elsewhere: the numerics are `rounding`.
    """
    return Rule(
        accepts_cost=True,
        name="raise_sink_attention",
        patterns=_PATTERNS,
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_fused_infer_attention_score_v2",),
        numerics="rounding",
    )
