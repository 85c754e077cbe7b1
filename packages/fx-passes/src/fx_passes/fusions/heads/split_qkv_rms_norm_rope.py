"""QKV split, RMSNorm of q and k, and RoPE by given angles, fused into one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.heads.normed_heads import (
    call_of,
    heads_problem,
    heads_rule,
    normed_heads_patterns,
)
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import rank_is, same_dtype, shapes_equal
from fx_passes.operators.vendor_kernel import KNOWN_KERNELS, QkvCall, VendorKernel

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked
    from fx_passes.rewriting.rule import Rule


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotated: Tensor = torch.ops.npu.npu_rotary_mul(x.unsqueeze(0), cos, sin).squeeze(0)
    return rotated


def _whole(heads: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor) -> Linked:
    q, k = heads
    return None, {"q": _rotated(q, cos, sin), "k": _rotated(k, cos, sin)}


def _partial(
    heads: tuple[Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    dim: int,
    first: int | None,
    end: int,
    start: int,
    last: int | None,
    cat_dim: int,
) -> Linked:
    part = torch.ops.aten.slice.Tensor
    q, k = (
        torch.cat(
            [_rotated(part(x, dim, first, end, 1), cos, sin), part(x, dim, start, last, 1)],
            cat_dim,
        )
        for x in heads
    )
    return None, {"q": q, "k": k}


def _problem(match: Match) -> NoMatch | None:
    return (
        rank_is(match, 3, "q", "k")
        or rank_is(match, 4, "cos", "sin")
        or same_dtype(match, "qkv", "cos", "sin")
        or heads_problem(match)
        or _rotation_problem(match)
        or _parts_problem(match)
    )


def _rotation_problem(match: Match) -> NoMatch | None:
    """Return the problem with the cosines and sines."""
    size = match.bound.get("end", match.tensor("q").shape[2])
    for name in ("cos", "sin"):
        tensor = match.tensor(name)
        first, _, third, last = tensor.shape
        if not shapes_equal((first, third, last), (1, 1, size)):
            return NoMatch(
                f"`{name}` has shape {list(tensor.shape)}; the operator takes [1, T, 1, {size}]"
            )
    return None


def _parts_problem(match: Match) -> NoMatch | None:
    """Return why a head is not cut into a part that is rotated and the rest."""
    bound = match.bound
    if "end" not in bound:
        return None
    size, last = match.tensor("q_heads").shape[2], bound["last"]
    to_the_end = last is None or (isinstance(last, int) and last >= size)
    if any(bound[name] not in {-1, 2} for name in ("dim", "cat_dim")):
        return NoMatch(f"heads are cut along {bound['dim']} and joined along {bound['cat_dim']}")
    if bound["end"] != bound["start"] or bound["first"] not in {None, 0} or not to_the_end:
        rotated = f"[{bound['first']}:{bound['end']}]"
        return NoMatch(
            f"the slices {rotated} and [{bound['start']}:{last}] are not the whole of a head of "
            f"{size}"
        )
    return None


def _call(match: Match) -> QkvCall:
    cos, sin = match.node("cos"), match.node("sin")
    return call_of(match, match.tensor("cos").shape[3], lambda _: (cos, sin))


def fuse_split_qkv_rms_norm_rope(
    *, kernels: tuple[VendorKernel, ...] = KNOWN_KERNELS, soc: str = ""
) -> Rule:
    """Return the rule that fuses the split of qkv, the norms of q and k, and their rotation.

    It matches `split` into q, k and v; `reshape` or `view` of q and k into heads; `npu_rms_norm`,
    with or without a bias added; `npu_rotary_mul` with shared cosines and sines between
    `unsqueeze(0)` and `squeeze(0)`, of whole heads or of the first part of each (partial RoPE). Any
    head size, any counts of heads, any eps, symbolic numbers of tokens. The result is one call of
    the first vendor kernel that is installed and able; where there is none the graph is left alone.
    v, which was a view of qkv, gets memory of its own.

    Args:
        kernels: Vendor kernels to use where they are installed, in order of preference. Empty for
            a call of `fx_passes::split_qkv_rms_norm_rope` (see `define_operators`): for those who
            have a kernel of it, as its reference launches all that it replaces. That gives the same
            bits, so the numerics are `exact`; vendor kernels need not.
        soc: Name of the device as `torch.npu.get_device_name()` gives it; empty for any.
    """
    return heads_rule(
        "rope",
        (*normed_heads_patterns(_whole), *normed_heads_patterns(_partial)),
        (),
        problem=_problem,
        call=_call,
        kernels=kernels,
        soc=soc,
        without="it would launch all that it replaces, and copy v",
    )
