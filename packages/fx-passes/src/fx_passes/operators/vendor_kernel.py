"""Kernels of other libraries that do the work of an operator of this package.

An interface is listed only if it can be read in its library's public source:

- `sglang::npu_split_qkv_rmsnorm_rope` (SGLang's compile-safe boundary around the Triton kernel
  `sgl_kernel_npu.norm.split_qkv_rmsnorm_rope`): sin before cos, hidden sizes in place of head
  counts, results [T, hidden size]. The kernel works in blocks of one head, whose size must be a
  power of two, and takes as many query heads a block as there are for each key head.

Not listed: vLLM-Ascend's `vllm::qkv_rmsnorm_rope`, because it takes positions and a cache of
cosines and sines, which a graph that has looked them up already no longer holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.operator_signature import find_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from fx_passes.graph_builder import GraphBuilder

__all__ = ["KNOWN_KERNELS", "QkvCall", "VendorKernel", "installed_kernel"]


@dataclass(frozen=True, kw_only=True)
class QkvCall:
    """A call of `fx_passes::split_qkv_rms_norm_rope` that is about to be built.

    Attributes:
        qkv: The projections, [T, (num_heads + 2 * num_kv_heads) * head_dim].
        q_weight: Weight of the norm of q, [head_dim].
        k_weight: Weight of the norm of k, [head_dim].
        cos: [1, T, 1, head_dim].
        sin: [1, T, 1, head_dim].
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        eps: Epsilon of both norms.
    """

    qkv: Node
    q_weight: Node
    k_weight: Node
    cos: Node
    sin: Node
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float


@dataclass(frozen=True, kw_only=True)
class VendorKernel:
    """A kernel that may be installed.

    Attributes:
        operator: Qualified name of the operator through which it is called.
        problem: Says why it cannot do a call, or returns None.
        build: Builds the call and returns q, k and v, each [T, heads, head_dim].
    """

    operator: str
    problem: Callable[[QkvCall], str | None]
    build: Callable[[QkvCall, GraphBuilder], tuple[Node, Node, Node]]


def _sglang_problem(call: QkvCall) -> str | None:
    if call.head_dim & (call.head_dim - 1):
        return f"head_dim {call.head_dim} is no power of two"
    if call.num_heads % call.num_kv_heads:
        return f"{call.num_heads} heads are no multiple of {call.num_kv_heads} key heads"
    return None


def _sglang_build(call: QkvCall, build: GraphBuilder) -> tuple[Node, Node, Node]:
    fused = build.call(
        "sglang::npu_split_qkv_rmsnorm_rope",
        call.qkv,
        build.call("aten::reshape", call.sin, [-1, 1, 1, call.head_dim]),
        build.call("aten::reshape", call.cos, [-1, 1, 1, call.head_dim]),
        call.num_heads * call.head_dim,
        call.num_kv_heads * call.head_dim,
        call.head_dim,
        eps=call.eps,
        q_weight=call.q_weight,
        k_weight=call.k_weight,
    )

    def heads(position: int, count: int) -> Node:
        shape = [-1, count, call.head_dim]
        return build.call("aten::reshape", build.element(fused, position), shape)

    kv_heads = call.num_kv_heads
    return heads(0, call.num_heads), heads(1, kv_heads), heads(2, kv_heads)


KNOWN_KERNELS: tuple[VendorKernel, ...] = (
    VendorKernel(
        operator="sglang::npu_split_qkv_rmsnorm_rope",
        problem=_sglang_problem,
        build=_sglang_build,
    ),
)


def installed_kernel(kernels: tuple[VendorKernel, ...], call: QkvCall) -> VendorKernel | None:
    """Return the first kernel whose operator exists in this process and which can do the call."""
    for kernel in kernels:
        if find_operator(kernel.operator) is not None and kernel.problem(call) is None:
            return kernel
    return None
