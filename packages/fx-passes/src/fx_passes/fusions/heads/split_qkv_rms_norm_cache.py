"""QKV split, RMSNorm of q and k, and RoPE by positions and a cache of angles, in one operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.heads.normed_heads import (
    call_of,
    heads_problem,
    heads_rule,
    normed_heads_patterns,
    unflattened_heads_pattern,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import rank_is, same_dtype, sizes_equal
from fx_passes.operators.vendor_kernel import KNOWN_KERNELS, QkvCall, VendorKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Rule


def _reshaped(heads: tuple[Tensor, Tensor], q_flat: Sequence[int], k_flat: Sequence[int]) -> Linked:
    q, k = heads
    return (q.reshape(q_flat), k.reshape(k_flat)), {}


def _flattened(
    heads: tuple[Tensor, Tensor], q_start: int, q_end: int, k_start: int, k_end: int
) -> Linked:
    q, k = heads
    flatten = torch.ops.aten.flatten.using_ints
    return (flatten(q, q_start, q_end), flatten(k, k_start, k_end)), {}


def _mrope(
    rows: tuple[Tensor, Tensor],
    positions: Tensor,
    cache: Tensor,
    head_size: int,
    section: Sequence[int] | None,
    mode: str,
    cache_mode: str,
) -> Linked:
    turned = torch.ops.npu.npu_mrope(
        positions,
        *rows,
        cache,
        head_size,
        mrope_section=section,
        rotary_mode=mode,
        cache_mode=cache_mode,
    )
    return None, {"q": turned[0], "k": turned[1]}


def _rotary_embedding(
    rows: tuple[Tensor, Tensor],
    positions: Tensor,
    cache: Tensor,
    head_size: int,
    rotary_dim: int,
    neox: bool,
) -> Linked:
    turned = torch.ops.vllm.npu_rotary_embedding(
        positions, *rows, cache, head_size, rotary_dim, neox
    )
    return None, {"q": turned[0], "k": turned[1]}


def _problem(match: Match) -> NoMatch | None:
    return (
        rank_is(match, 2, "q", "k", "cache")
        or same_dtype(match, "qkv", "cache")
        or heads_problem(match)
        or _row_problem(match)
        or _rotation_problem(match)
        or _position_problem(match)
    )


def _row_problem(match: Match) -> NoMatch | None:
    """Return why a row of the rotated q or k is not all heads of one token."""
    sizes = match.bound["sizes"]
    wanted = list(sizes)[:2] if isinstance(sizes, (list, tuple)) else []
    for name, size in zip(("q", "k"), wanted, strict=True):
        found = match.tensor(name).shape[1]
        if not sizes_equal(found, size):
            return NoMatch(f"`{name}` has rows of {found}; expected {size}, all heads")
    return None


def _rotation_problem(match: Match) -> NoMatch | None:
    bound = match.bound
    head_dim, rotary = match.tensor("q_weight").shape[0], match.tensor("cache").shape[1]
    if not sizes_equal(bound["head_size"], head_dim):
        return NoMatch(f"heads of {head_dim} are rotated as heads of {bound['head_size']}")
    if not all(isinstance(each, int) for each in (rotary,)) or rotary % 2 or rotary > head_dim:
        return NoMatch(f"`cache` has angles for {rotary} elements of a head of {head_dim}")
    if not sizes_equal(bound.get("rotary_dim", rotary), rotary):
        return NoMatch(f"{bound['rotary_dim']} elements are rotated by angles for {rotary}")
    if bound.get("mode", "half") != "half" or bound.get("neox", True) is not True:
        return NoMatch("neighbours are rotated; the operator rotates halves")
    return None


def _sections(match: Match) -> list[int]:
    """Return the sections of the rotation that have positions of their own, none for plain RoPE."""
    section = match.bound.get("section")
    return list(section) if isinstance(section, (list, tuple)) and any(section) else []


def _position_problem(match: Match) -> NoMatch | None:
    bound, positions, cache = match.bound, match.tensor("positions"), match.tensor("cache")
    sections = _sections(match)
    if not sections:
        if positions.dim() == 1:
            return None
        return NoMatch(f"`positions` has {positions.dim()} dimensions and there are no sections")
    if bound["cache_mode"] != "default":
        return NoMatch(f"cache_mode {bound['cache_mode']!r} mixes sections; known is 'default'")
    fits = positions.dim() == 2 and sizes_equal(positions.shape[0], len(sections))
    if not fits or not sizes_equal(2 * sum(sections), cache.shape[1]):
        return NoMatch(
            f"the sections {sections} do not fit positions {list(positions.shape)} and angles for "
            f"{cache.shape[1]} elements"
        )
    return None


def _call(match: Match) -> QkvCall:
    cache, lookup = match.tensor("cache"), None
    # Several sections have positions of their own, which is several rows for each token.
    if not _sections(match):
        lookup = match.node("positions"), match.node("cache")
    return call_of(match, cache.shape[1], partial(_angles, match, cache), lookup)


def _angles(match: Match, cache: Tensor, build: GraphBuilder) -> tuple[Node, Node]:
    """Build cosines and sines [1, T, 1, rotary_dim], for all layers once they are shared."""
    positions, held, sections = match.node("positions"), match.node("cache"), _sections(match)
    tokens, rotary = match.tensor("qkv").shape[0], cache.shape[1]
    half = rotary // 2
    if not sections:
        rows = build.call(
            "aten::index_select", held, 0, positions, val=cache.new_empty((tokens, rotary))
        )
        planes, bounds = [rows], [(0, half)]
    else:
        count = len(sections)
        flat = build.call("aten::reshape", positions, [-1])
        rows = build.call("aten::index_select", held, 0, flat)
        folded = build.call("aten::reshape", rows, [count, -1, rotary])
        planes = [build.call("aten::select.int", folded, 0, row) for row in range(count)]
        ends = [sum(sections[: row + 1]) for row in range(count)]
        bounds = [(end - size, end) for end, size in zip(ends, sections, strict=True)]
    pieces: list[Node] = []
    for offset in (0, half):
        parts = [
            build.call("aten::slice.Tensor", plane_node, 1, offset + start, offset + end)
            for plane_node, (start, end) in zip(planes, bounds, strict=True)
        ]
        doubled = build.call(
            "aten::cat", [*parts, *parts], -1, val=cache.new_empty((tokens, rotary))
        )
        pieces.append(
            build.call(
                "aten::reshape",
                doubled,
                [1, -1, 1, rotary],
                val=cache.new_empty((1, tokens, 1, rotary)),
            )
        )
    cos, sin = pieces
    return cos, sin


_rule = partial(
    heads_rule,
    problem=_problem,
    call=_call,
    without="the rotation would be two operators",
    # Angles are looked up once for all layers.
    accepts_cost=True,
)


def fuse_split_qkv_rms_norm_mrope(
    *, kernels: tuple[VendorKernel, ...] = KNOWN_KERNELS, soc: str = ""
) -> Rule:
    """Return the rule that fuses the split of qkv, the norms of q and k, and `npu_mrope`.

    Matches SGLang's form: q and k are split into heads by one reshape and joined by another, in any
    shape; positions [T], or [m, T] with m sections (multimodal RoPE); optional bias after the
    norms; partial RoPE if the cache is narrower than a head. Cosines and sines are looked up and
    doubled once for all layers that share positions and cache (`ShareEqualCallsPass`).

    Applies only if a suitable vendor kernel is installed: without one, the fused operator rotates q
    and k by one operator each, while `npu_mrope` rotates both. With `kernels=()` this is done, with
    the same bits.

    Args:
        kernels: Vendor kernels, in order of preference.
        soc: Name of the device as returned by `torch.npu.get_device_name()`; empty for any.
    """
    patterns = normed_heads_patterns(_reshaped, _mrope)
    return _rule("mrope", patterns, ("npu::npu_mrope",), kernels=kernels, soc=soc)


def fuse_split_qkv_rms_norm_rotary_embedding(
    *, kernels: tuple[VendorKernel, ...] = KNOWN_KERNELS, soc: str = ""
) -> Rule:
    """Return the same rule for `vllm::npu_rotary_embedding`, as vLLM-Ascend writes it.

    That operator takes one position a token and says how much of a head is rotated; else see
    `fuse_split_qkv_rms_norm_mrope`. q and k may also be cut into heads by `unflatten` and joined by
    `flatten`, as in Gemma 3n and Gemma 4, which normalise v as well. The norm of v stays:
    vLLM-Ascend's kernel for all three leaves out the weight of that norm, and a graph does not show
    that this weight is one.

    Args:
        kernels: Vendor kernels, in order of preference.
        soc: Name of the device as `torch.npu.get_device_name()` gives it; empty for any.
    """
    patterns = (
        *normed_heads_patterns(_reshaped, _rotary_embedding),
        unflattened_heads_pattern(_flattened, _rotary_embedding),
    )
    operators = ("vllm::npu_rotary_embedding",)
    return _rule("rotary_embedding", patterns, operators, kernels=kernels, soc=soc)
