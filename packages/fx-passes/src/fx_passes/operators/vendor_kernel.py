"""Kernels of other libraries that do the work of an operator of this package.

An interface is listed only if it can be read in its library's public source:

- `sglang::npu_split_qkv_rmsnorm_rope` (SGLang's compile-safe boundary around the Triton kernel
  `sgl_kernel_npu.norm.split_qkv_rmsnorm_rope`): sin before cos, hidden sizes in place of head
  counts, results [T, hidden size]. The kernel works in blocks of one head, whose size must be a
  power of two, takes as many query heads a block as there are for each key head, and rotates
  whole heads.

Not listed yet: vLLM-Ascend's `vllm::qkv_rmsnorm_rope`. It takes positions and a cache of cosines
and sines, which its graphs hold (`vllm::npu_rotary_embedding` takes them); a `QkvCall` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.normal_form.operator_signature import find_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["KNOWN_KERNELS", "QkvCall", "QkvHeads", "VendorKernel", "installed_kernel"]


@dataclass(frozen=True, kw_only=True)
class QkvHeads:
    """The sizes of a call of `fx_passes::split_qkv_rms_norm_rope`.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        rotary_dim: How much of each head is rotated.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int


@dataclass(frozen=True, kw_only=True)
class QkvCall:
    """A call of `fx_passes::split_qkv_rms_norm_rope` that is about to be built.

    Attributes:
        heads: The sizes.
        qkv: The projections, [T, (num_heads + 2 * num_kv_heads) * head_dim].
        q_weight: Weight of the norm of q, [head_dim].
        k_weight: Weight of the norm of k, [head_dim].
        q_bias: What is added to the norm of q, [head_dim], or None.
        k_bias: The same for k.
        cos: [1, T, 1, rotary_dim].
        sin: [1, T, 1, rotary_dim].
        eps: Epsilon of both norms.
    """

    heads: QkvHeads
    qkv: Node
    q_weight: Node
    k_weight: Node
    q_bias: Node | None
    k_bias: Node | None
    cos: Node
    sin: Node
    eps: float


@dataclass(frozen=True, kw_only=True)
class VendorKernel:
    """A kernel that may be installed.

    Attributes:
        operator: Qualified name of the operator through which it is called.
        problem: Says why it cannot do a call of some sizes, or returns None.
        build: Builds the call and returns q, k and v, each [T, heads, head_dim].
    """

    operator: str
    problem: Callable[[QkvHeads], str | None]
    build: Callable[[QkvCall, GraphBuilder], tuple[Node, Node, Node]]

    def fingerprint(self) -> str:
        """Return a hash of the kernel, another where it is not installed."""
        functions = (self.problem, self.build)
        return fingerprint_of_functions(functions, self.operator, self.is_installed())

    def is_installed(self) -> bool:
        """Return whether this process has the operator."""
        return find_operator(self.operator) is not None


def _sglang_problem(heads: QkvHeads) -> str | None:
    if heads.head_dim & (heads.head_dim - 1):
        return f"head_dim {heads.head_dim} is no power of two"
    if heads.num_heads % heads.num_kv_heads:
        return f"{heads.num_heads} heads are no multiple of {heads.num_kv_heads} key heads"
    if heads.rotary_dim != heads.head_dim:
        return f"{heads.rotary_dim} of {heads.head_dim} elements of a head are rotated"
    return None


def _sglang_build(call: QkvCall, build: GraphBuilder) -> tuple[Node, Node, Node]:
    sizes = call.heads
    fused = build.call(
        "sglang::npu_split_qkv_rmsnorm_rope",
        call.qkv,
        build.call("aten::reshape", call.sin, [-1, 1, 1, sizes.head_dim]),
        build.call("aten::reshape", call.cos, [-1, 1, 1, sizes.head_dim]),
        sizes.num_heads * sizes.head_dim,
        sizes.num_kv_heads * sizes.head_dim,
        sizes.head_dim,
        eps=call.eps,
        q_weight=call.q_weight,
        k_weight=call.k_weight,
        q_bias=call.q_bias,
        k_bias=call.k_bias,
    )

    def heads(position: int, count: int) -> Node:
        shape = [-1, count, sizes.head_dim]
        return build.call("aten::reshape", build.element(fused, position), shape)

    kv_heads = sizes.num_kv_heads
    return heads(0, sizes.num_heads), heads(1, kv_heads), heads(2, kv_heads)


KNOWN_KERNELS: tuple[VendorKernel, ...] = (
    VendorKernel(
        operator="sglang::npu_split_qkv_rmsnorm_rope",
        problem=_sglang_problem,
        build=_sglang_build,
    ),
)


def installed_kernel(kernels: tuple[VendorKernel, ...], heads: QkvHeads) -> VendorKernel | None:
    """Return the first kernel whose operator exists in this process and which can do the sizes."""
    for kernel in kernels:
        if kernel.is_installed() and kernel.problem(heads) is None:
            return kernel
    return None
