"""QKV split, RMSNorm of q and k, and RoPE, fused into one operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.graph_argument import literals_equal
from fx_passes.match import Match, NoMatch
from fx_passes.operators.split_qkv_rms_norm_rope import OPERATOR, define_operators
from fx_passes.operators.vendor_kernel import (
    KNOWN_KERNELS,
    QkvCall,
    VendorKernel,
    installed_kernel,
)
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fx_passes.graph_builder import GraphBuilder

__all__ = ["fuse_split_qkv_rms_norm_rope"]


def _pattern(
    qkv: Tensor,
    sizes: Sequence[int],
    split_dim: int,
    q_shape: Sequence[int],
    k_shape: Sequence[int],
    q_weight: Tensor,
    k_weight: Tensor,
    q_epsilon: float,
    k_epsilon: float,
    cos: Tensor,
    sin: Tensor,
) -> dict[str, Tensor]:
    parts = torch.ops.aten.split_with_sizes(qkv, sizes, split_dim)
    q = torch.ops.npu.npu_rms_norm(parts[0].reshape(q_shape), q_weight, q_epsilon)[0]
    k = torch.ops.npu.npu_rms_norm(parts[1].reshape(k_shape), k_weight, k_epsilon)[0]
    return {
        "q": torch.ops.npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0),
        "k": torch.ops.npu.npu_rotary_mul(k.unsqueeze(0), cos, sin).squeeze(0),
        "v": parts[2],
    }


def _check(match: Match) -> NoMatch | None:
    unmet = first_unmet(
        match,
        Requirement.rank("qkv", 2),
        Requirement.rank("q", 3),
        Requirement.rank("k", 3),
        Requirement.rank("cos", 4),
        Requirement.rank("sin", 4),
        Requirement.same_dtype("qkv", "q_weight", "k_weight", "cos", "sin"),
        Requirement.dtype_in("qkv", torch.bfloat16, torch.float16, torch.float32),
    )
    return unmet or _literal_problem(match) or _head_problem(match) or _rotation_problem(match)


def _literal_problem(match: Match) -> NoMatch | None:
    """Return what is wrong with the dimension or the epsilons."""
    bound = match.bound
    if bound["split_dim"] not in {-1, 1}:
        return NoMatch(f"the split is along dimension {bound['split_dim']}, not the last")
    if not isinstance(bound["q_epsilon"], (int, float)):
        return NoMatch(f"the epsilon {bound['q_epsilon']} is no number")
    if not literals_equal(bound["q_epsilon"], bound["k_epsilon"]):
        return NoMatch(
            f"the norm of q has epsilon {bound['q_epsilon']}, that of k {bound['k_epsilon']}"
        )
    return None


def _head_problem(match: Match) -> NoMatch | None:
    """Return what is wrong with the sizes of the heads."""
    tensors = match.tensors("q", "k")
    if isinstance(tensors, NoMatch):
        return tensors
    q, k = tensors
    heads = (*q.shape[1:], *k.shape[1:])
    if not all(isinstance(size, int) for size in heads):
        return NoMatch(f"head counts and sizes must be numbers, found {list(heads)}")
    expected = [q.shape[1] * q.shape[2], k.shape[1] * k.shape[2], k.shape[1] * k.shape[2]]
    sizes = match.bound["sizes"]
    if q.shape[2] != k.shape[2] or not literals_equal(sizes, expected):
        return NoMatch(
            f"the split sizes {sizes} do not give q {list(q.shape)}, k {list(k.shape)} and a v "
            "like k"
        )
    return None


def _rotation_problem(match: Match) -> NoMatch | None:
    """Return what is wrong with the cosines and sines."""
    tensors = match.tensors("q", "cos", "sin")
    if isinstance(tensors, NoMatch):
        return tensors
    head_dim = tensors[0].shape[2]
    for name, tensor in zip(("cos", "sin"), tensors[1:], strict=True):
        first, _, third, last = tensor.shape
        if not all(map(sizes_equal, (first, third, last), (1, 1, head_dim))):
            return NoMatch(
                f"`{name}` has shape {list(tensor.shape)}; the operator takes [1, T, 1, {head_dim}]"
            )
    return None


def _node(match: Match, name: str) -> Node:
    node = match.bound[name]
    if not isinstance(node, Node):
        raise RuleError(f"building {OPERATOR}: `{name}` is {node!r}, expected a node")
    return node


def _rewrite(
    match: Match, build: GraphBuilder, *, kernels: tuple[VendorKernel, ...]
) -> dict[str, Node]:
    tensors, epsilon = match.tensors("q", "k"), match.bound["q_epsilon"]
    if isinstance(tensors, NoMatch) or not isinstance(epsilon, (int, float)):
        raise RuleError(f"building {OPERATOR}: the match was not checked")
    q, k = tensors
    call = QkvCall(
        qkv=_node(match, "qkv"),
        q_weight=_node(match, "q_weight"),
        k_weight=_node(match, "k_weight"),
        cos=_node(match, "cos"),
        sin=_node(match, "sin"),
        num_heads=q.shape[1],
        num_kv_heads=k.shape[1],
        head_dim=q.shape[2],
        eps=float(epsilon),
    )
    kernel = installed_kernel(kernels, call)
    if kernel is not None:
        fused = dict(zip(("q", "k", "v"), kernel.build(call, build), strict=True))
    else:
        node = build.call(
            OPERATOR,
            call.qkv,
            call.q_weight,
            call.k_weight,
            call.cos,
            call.sin,
            call.num_heads,
            call.num_kv_heads,
            call.head_dim,
            call.eps,
            val=(q, k, torch.empty_like(k)),
        )
        fused = {"v": build.element(node, 2)} if "v" in match.needed else {}
        fused |= build.elements(node, {"q": 0, "k": 1})
    if "v" in match.needed:
        v = match.value("v")
        fused["v"] = build.call(
            "aten::reshape", fused["v"], [-1, call.num_kv_heads * call.head_dim], val=v
        )
    return {name: fused[name] for name in match.needed}


def fuse_split_qkv_rms_norm_rope(*, kernels: tuple[VendorKernel, ...] = KNOWN_KERNELS) -> Rule:
    """Return the rule that fuses the split of qkv, the norms of q and k, and their rotation.

    It matches `split` into q, k and v; `reshape` or `view` of q and k into heads; `npu_rms_norm`;
    `npu_rotary_mul` with shared cosines and sines between `unsqueeze(0)` and `squeeze(0)`. Any head
    size, any counts of heads, any eps, symbolic numbers of tokens. The result is one call of
    `fx_passes::split_qkv_rms_norm_rope` (see `define_operators`), or of the first vendor kernel
    that is installed and able. v, which was a view of qkv, gets memory of its own.

    The reference gives the same bits; vendor kernels need not, so the numerics are `exact` only
    for a rule without them.

    Args:
        kernels: Vendor kernels to use where they are installed, in order of preference.
    """
    return Rule(
        name="fuse_split_qkv_rms_norm_rope",
        patterns=(_pattern,),
        check=_check,
        rewrite=partial(_rewrite, kernels=kernels),
        operators=("npu::npu_rms_norm", "npu::npu_rotary_mul"),
        numerics="rounding" if kernels else "exact",
        prepare=define_operators,
    )
