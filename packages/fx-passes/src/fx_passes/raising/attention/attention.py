"""Scaled dot-product attention without a paged cache, raised to the fused infer operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import (
    dtype_in,
    is_dense,
    is_number,
    on_npu,
    rank_is,
    same_dtype,
    shapes_equal,
    sizes_equal,
)
from fx_passes.memory import views_of
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.memory import EffectTable
    from fx_passes.rewriting.graph_builder import GraphBuilder


# aclnnFusedInferAttentionScore: heads of at most 512, in whole units of 16 bytes; the compressed
# mask of its causal modes is a triangle of this side.
_LONGEST_HEAD = 512
_HEAD_UNIT = 8
_CAUSAL_MASK_SIDE = 2048
_SPARSE_WHOLE_MASK = 1
_SPARSE_CAUSAL_FROM_TOP_LEFT = 2
_RANK = 4
# What is this far below the scores has a weight of zero in every dtype of 16 bits.
_FAR_BELOW = -1e4


def _plain(query: Tensor, key: Tensor, value: Tensor) -> Linked:
    return (query, key, value), {}


def _repeated(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_sizes: Sequence[int],
    key_shape: Sequence[int],
    value_sizes: Sequence[int],
    value_shape: Sequence[int],
) -> Linked:
    """Keys and values repeated for each query head of a group, as `repeat_kv` does."""
    aten = torch.ops.aten
    wide_key = label(aten.expand(aten.unsqueeze(key, 2), key_sizes), "wide_key")
    wide_value = label(aten.expand(aten.unsqueeze(value, 2), value_sizes), "wide_value")
    all_keys = label(aten.reshape(wide_key, key_shape), "all_keys")
    return (query, all_keys, label(aten.reshape(wide_value, value_shape), "all_values")), {}


def _attended(
    heads: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Linked:
    attended = torch.ops.aten.scaled_dot_product_attention.default(
        *heads, mask, dropout, causal, scale=scale, enable_gqa=gqa
    )
    return None, {"y": attended}


def _check(match: Match) -> NoMatch | None:
    return (
        heads_problem(match)
        or _settings_problem(match)
        or mask_problem(match)
        or layout_problem(match, "y")
    )


def heads_problem(match: Match) -> NoMatch | None:
    """Return why the kernel does not take `query`, `key` and `value` of a match."""
    unmet = (
        on_npu(match, "query")
        or dtype_in(match, "query", torch.bfloat16, torch.float16)
        or same_dtype(match, "query", "key", "value")
        or rank_is(match, _RANK, "query", "key", "value")
    )
    if unmet is not None:
        return unmet
    query, key, value = map(match.tensor, ("query", "key", "value"))
    heads, kv_heads, size = query.shape[1], key.shape[1], query.shape[-1]
    if not all(isinstance(each, int) for each in (heads, kv_heads, size)):
        return NoMatch(f"heads and their size must be numbers, found {heads}, {kv_heads}, {size}")
    if not sizes_equal(size, key.shape[-1]) or size > _LONGEST_HEAD or size % _HEAD_UNIT:
        return NoMatch(
            f"heads of {size} in `query` and {key.shape[-1]} in `key`; the kernel takes one size, "
            f"a multiple of {_HEAD_UNIT} up to {_LONGEST_HEAD}"
        )
    if not sizes_equal(query.shape[0], key.shape[0]):
        return NoMatch(f"batches of {query.shape[0]} queries and {key.shape[0]} keys")
    return _value_problem(key, value) or _groups_problem(match, heads, kv_heads)


def _value_problem(key: Tensor, value: Tensor) -> NoMatch | None:
    if not shapes_equal(key.shape[:-1], value.shape[:-1]):
        return NoMatch(
            f"`key` has shape {list(key.shape)} and `value` {list(value.shape)}, which may differ "
            "in the last dimension only"
        )
    size: object = value.shape[-1]
    key_size: object = key.shape[-1]
    if not (isinstance(size, int) and isinstance(key_size, int) and size <= key_size):
        return NoMatch(
            f"heads of {key_size} in `key` and {size} in `value`; narrower values are padded, "
            "wider ones the kernel does not take"
        )
    return None


def _groups_problem(match: Match, heads: int, kv_heads: int) -> NoMatch | None:
    if "wide_key" in match.labels:
        return _repeat_problem(match, heads // kv_heads)
    # One head of keys is broadcast to all heads of queries.
    grouped = match.bound.get("gqa") is True and heads % kv_heads == 0
    if kv_heads not in {1, heads} and not grouped:
        return NoMatch(f"{heads} query heads and {kv_heads} key heads without enable_gqa")
    return None


def _repeat_problem(match: Match, groups: int) -> NoMatch | None:
    """Return why keys and values are not repeated head by head, each for a group of queries."""
    names = ("query", "key", "value", "wide_key", "all_keys", "wide_value", "all_values")
    query, key, value, wide_key, all_keys, wide_value, all_values = map(match.tensor, names)
    batch, kv_heads, length, size = key.shape
    value_size = value.shape[-1]
    for name, tensor, shape in (
        ("key", wide_key, (batch, kv_heads, groups, length, size)),
        ("key", all_keys, (batch, query.shape[1], length, size)),
        ("value", wide_value, (batch, kv_heads, groups, length, value_size)),
        ("value", all_values, (batch, query.shape[1], length, value_size)),
    ):
        if not shapes_equal(tensor.shape, shape):
            return NoMatch(
                f"`{name}` is repeated to {list(tensor.shape)}, expected {list(shape)}: each head "
                f"for the {groups} query heads of its group"
            )
    return None


def _settings_problem(match: Match) -> NoMatch | None:
    dropout, causal, scale = match.arguments("dropout", "causal", "scale")
    if dropout != 0:
        return NoMatch(f"dropout_p is {dropout}; the kernel has none")
    if not isinstance(causal, bool):
        return NoMatch(f"is_causal is {causal}; it must be known when the graph is compiled")
    if scale is not None and not is_number(scale):
        return NoMatch(f"scale is {scale}; the kernel takes a number")
    if causal and sizes_equal(match.tensor("query").shape[2], 1):
        return NoMatch("is_causal over one query sees the first key only; the kernel sees all")
    return None


def mask_problem(match: Match) -> NoMatch | None:
    """Return why the kernel does not take the `mask` of a match."""
    if match.bound.get("mask") is None:
        return None
    if match.bound.get("causal"):
        return NoMatch("is_causal and a mask at once")
    query, key, mask = map(match.tensor, ("query", "key", "mask"))
    seen = seen_mask(match)
    value = None if seen is None else value_of(seen)
    if not isinstance(value, torch.Tensor):
        return NoMatch(
            f"`mask` has dtype {mask.dtype} and is added to the scores; the kernel takes bool, or "
            "what is made of it as `where(seen, 0, minimum)`"
        )
    return _mask_shape_problem(value.shape, query, key)


def seen_mask(match: Match) -> Node | None:
    """Return the mask of a match that is True for a key that is seen, or None."""
    mask, value = match.bound.get("mask"), match.value("mask")
    if not isinstance(mask, Node) or not isinstance(value, torch.Tensor):
        return None
    return mask if value.dtype == torch.bool else _seen_keys(mask, match.effects)


def _seen_keys(mask: Node, effects: EffectTable) -> Node | None:
    """Return the bool mask of an additive mask, True for a key that is attended to, or None.

    Models build such a mask as `where(seen, 0, minimum of the dtype)`.
    """
    aten = torch.ops.aten
    chosen = {aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar}
    if mask.target not in chosen:
        return None
    seen, zero, far_below = mask.args
    if not isinstance(seen, Node) or _number(zero) != 0:
        return None
    number = _number(far_below)
    if number is None or not number <= _FAR_BELOW:
        return None
    tensors = [each for each in (mask, seen, zero, far_below) if isinstance(each, Node)]
    return None if any(_is_written(each, effects) for each in tensors) else seen


def _number(item: object) -> float | None:
    """Return the number that all elements of a tensor are, where its factory tells it."""
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    if not isinstance(item, Node) or item.op != "call_function":
        return None
    name = str(getattr(item.target, "__name__", item.target)).partition(".")[0]
    if name in {"zeros", "new_zeros", "zeros_like"}:
        return 0.0
    value = {"full": item.args[1:2], "scalar_tensor": item.args[:1], "tensor": item.args[:1]}
    return _number(value[name][0]) if value.get(name) else None


def _is_written(node: Node, effects: EffectTable) -> bool:
    family = (node, *views_of(node, effects))
    return any(value in effects.of(user).writes for value in family for user in value.users)


def _mask_shape_problem(shape: torch.Size, query: Tensor, key: Tensor) -> NoMatch | None:
    batch, length, keys = query.shape[0], query.shape[2], key.shape[2]
    rank = len(shape)
    if rank == 2 and sizes_equal(length, 1):
        return NoMatch(f"`mask` has shape {list(shape)}, which the kernel reads as one row a batch")
    fits = rank in {2, _RANK} and sizes_equal(shape[-2], length) and sizes_equal(shape[-1], keys)
    if fits and rank == _RANK:
        one_batch = sizes_equal(shape[0], 1) or sizes_equal(shape[0], batch)
        fits = one_batch and sizes_equal(shape[1], 1)
    if not fits:
        return NoMatch(
            f"`mask` has shape {list(shape)}; the kernel takes [{length}, {keys}] or "
            f"[1 or {batch}, 1, {length}, {keys}]"
        )
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound = match.bound
    query, key, value, y = map(match.tensor, ("query", "key", "value", "y"))
    missing = key.shape[-1] - value.shape[-1]
    values = dense(bound["value"], build)
    if missing:
        values = build.call("aten::constant_pad_nd", values, [0, missing])
    mask, sparse_mode = kernel_mask(match, build, query)
    scale = bound["scale"]
    fused = build.call(
        "npu::npu_fused_infer_attention_score",
        dense(bound["query"], build),
        dense(bound["key"], build),
        values,
        atten_mask=mask,
        num_heads=query.shape[1],
        num_key_value_heads=key.shape[1],
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else scale,
        input_layout="BNSD",
        sparse_mode=sparse_mode,
        # Without softmax_lse_flag the second result is empty.
        val=(query.new_empty(query.shape), y.new_empty(0, dtype=torch.float32)),
    )
    if not missing:
        return build.elements(fused, {"y": 0})
    padded = build.element(fused, 0)
    narrow = build.call("aten::slice.Tensor", padded, -1, 0, value.shape[-1])
    return {"y": build.call("aten::contiguous", narrow, val=dense_like(y))}


def kernel_mask(match: Match, build: GraphBuilder, query: torch.Tensor) -> tuple[Node | None, int]:
    """Return the mask for the kernel, True for masked keys, and the sparse mode."""
    mask = seen_mask(match)
    if mask is not None:
        value = value_of(mask)
        known = dense_like(value) if isinstance(value, torch.Tensor) else None
        return build.call("aten::logical_not", mask, val=known), _SPARSE_WHOLE_MASK
    if match.bound.get("causal") is not True:
        return None, 0
    side = [_CAUSAL_MASK_SIDE, _CAUSAL_MASK_SIDE]
    known = query.new_empty(side, dtype=torch.bool)
    ones = build.call("aten::ones", side, dtype=torch.bool, device=query.device, val=known)
    return build.call("aten::triu", ones, 1, val=known), _SPARSE_CAUSAL_FROM_TOP_LEFT


def dense(argument: object, build: GraphBuilder) -> object:
    """Return a value in contiguous memory, which the kernel demands."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    if isinstance(value, torch.Tensor) and not is_dense(value):
        return build.call("aten::contiguous", argument, val=dense_like(value))
    return argument


def raise_attention() -> Rule:
    """Return the rule `scaled_dot_product_attention` to `npu_fused_infer_attention_score`.

    For [batch, heads, sequence, size] without dropout: no mask, a bool mask (which is inverted:
    True is "not seen" for the kernel) or `is_causal`; grouped heads by `enable_gqa` or by keys and
    values repeated with `unsqueeze`, `expand`, `reshape`, which then are not repeated at all; any
    scale. A mask that is added to the scores is not raised. What a row gives that may see nothing
    is not defined: torch and the kernel differ.

    Inverted and causal masks are built for each attention; `ShareEqualCallsPass` leaves one of
    each. Kernels round the scores elsewhere than torch: the numerics are `rounding`. Source of the
    limits: aclnnFusedInferAttentionScore takes float16 and bfloat16.
    """
    return Rule(
        accepts_cost=True,
        name="raise_attention",
        patterns=(combine(_repeated, _attended), combine(_plain, _attended)),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_fused_infer_attention_score",),
        numerics="rounding",
    )
