"""Kernels of other libraries that do the work of an operator of this package.

An interface is listed only if it can be read in its library's public source:

- `sglang::npu_split_qkv_rmsnorm_rope` (SGLang's compile-safe boundary around the Triton kernel
  `sgl_kernel_npu.norm.split_qkv_rmsnorm_rope`): sin before cos, hidden sizes in place of head
  counts, results [T, hidden size]. The kernel works in blocks of one head, whose size must be a
  power of two, takes as many query heads a block as there are for each key head, and rotates
  whole heads.
- `vllm::qkv_rmsnorm_rope` and, for Ascend950, `vllm::qkv_rmsnorm_rope_simt` (Triton kernels of
  vLLM-Ascend 0.23): they take positions and the cache of cosines and sines and look them up
  themselves, rotate as much of a head as the cache has angles for, and write [T, hidden size].
  They compute in bfloat16, read dense memory, and vLLM-Ascend calls them for heads of 128 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.matching.requirements import is_dense
from fx_passes.normal_form.operator_signature import find_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


_VLLM_HEAD_DIM = 128


@dataclass(frozen=True, kw_only=True)
class QkvCall:
    """A call of `fx_passes::split_qkv_rms_norm_rope` that is about to be built.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        rotary_dim: How much of each head is rotated.
        qkv: The projections, [T, (num_heads + 2 * num_kv_heads) * head_dim].
        q_weight: Weight of the norm of q, [head_dim].
        k_weight: Weight of the norm of k, [head_dim].
        q_bias: What is added to the norm of q, [head_dim], or None.
        k_bias: The same for k.
        angles: Gives cosines and sines, each [1, T, 1, rotary_dim]; builds them where the graph
            looks them up itself, so only a kernel that takes them asks for them.
        cache: Where the graph looks them up: the row of each token, [T], integers, and the rows,
            [rows, rotary_dim], cosines in the first half and sines in the second; None where it
            does not, or by more than one position for each token.
        eps: Epsilon of both norms: a number, or the node that gives it.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    qkv: Node
    q_weight: Node
    k_weight: Node
    q_bias: Node | None
    k_bias: Node | None
    angles: Callable[[GraphBuilder], tuple[Node, Node]]
    cache: tuple[Node, Node] | None
    eps: float | Node


@dataclass(frozen=True, kw_only=True)
class VendorKernel:
    """A kernel that may be installed.

    Attributes:
        operator: Qualified name of the operator through which it is called.
        problem: Says why it cannot do a call, or returns None.
        build: Builds the call and returns q, k and v, each [T, heads, head_dim].
        devices: How the names of the devices begin that have it; empty for all.
    """

    operator: str
    problem: Callable[[QkvCall], str | None]
    build: Callable[[QkvCall, GraphBuilder], tuple[Node, Node, Node]]
    devices: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Return a hash of the kernel, another where it is not installed."""
        functions, installed = (self.problem, self.build), find_operator(self.operator) is not None
        return fingerprint_of_functions(functions, self.operator, self.devices, installed)

    def why_not(self, call: QkvCall) -> str | None:
        """Return why it cannot do a call in this process, or None."""
        return "not installed" if find_operator(self.operator) is None else self.problem(call)

    def runs_on(self, soc: str) -> bool:
        """Return whether a device has it, by `torch.npu.get_device_name()`; empty is any device."""
        return not self.devices or soc.startswith(self.devices)


def _sglang_problem(call: QkvCall) -> str | None:
    if call.head_dim & (call.head_dim - 1):
        return f"head_dim {call.head_dim} is no power of two"
    if call.num_heads % call.num_kv_heads:
        return f"{call.num_heads} heads are no multiple of {call.num_kv_heads} key heads"
    if call.rotary_dim != call.head_dim:
        return f"{call.rotary_dim} of {call.head_dim} elements of a head are rotated"
    return None


def _sglang_build(call: QkvCall, build: GraphBuilder) -> tuple[Node, Node, Node]:
    cos, sin = call.angles(build)
    fused = build.call(
        "sglang::npu_split_qkv_rmsnorm_rope",
        call.qkv,
        build.call("aten::reshape", sin, [-1, 1, 1, call.head_dim]),
        build.call("aten::reshape", cos, [-1, 1, 1, call.head_dim]),
        call.num_heads * call.head_dim,
        call.num_kv_heads * call.head_dim,
        call.head_dim,
        eps=call.eps,
        q_weight=call.q_weight,
        k_weight=call.k_weight,
        q_bias=call.q_bias,
        k_bias=call.k_bias,
    )
    return _cut_into_heads(fused, call, build)


def _vllm_problem(call: QkvCall) -> str | None:
    if call.cache is None:
        return "it looks up one row of angles for each token, which this graph does not"
    if call.head_dim != _VLLM_HEAD_DIM:
        return f"heads have {call.head_dim} elements; it is called for {_VLLM_HEAD_DIM} only"
    positions, table = call.cache
    tensors = {
        "qkv": call.qkv,
        "q_weight": call.q_weight,
        "k_weight": call.k_weight,
        "the cache": table,
        "positions": positions,
    }
    for name, node in tensors.items():
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return f"{name} has no tensor metadata"
        if value.dtype != torch.bfloat16 and name != "positions":
            return f"{name} has dtype {value.dtype}; it computes in torch.bfloat16"
        if not is_dense(value):
            return f"{name} is not contiguous"
    return None


def _vllm_build(call: QkvCall, build: GraphBuilder, *, operator: str) -> tuple[Node, Node, Node]:
    if call.cache is None:
        raise ValueError(f"building {operator}: the graph looks up no angles")
    (positions, table), qkv = call.cache, call.qkv.meta["val"]
    widths = [count * call.head_dim for count in (call.num_heads, call.num_kv_heads)]
    fused = build.call(
        operator,
        call.qkv,
        table,
        positions,
        call.q_weight,
        call.k_weight,
        *widths,
        call.head_dim,
        call.eps,
        q_bias=call.q_bias,
        k_bias=call.k_bias,
        val=tuple(qkv.new_empty((qkv.shape[0], width)) for width in (*widths, widths[1])),
    )
    return _cut_into_heads(fused, call, build)


def _cut_into_heads(fused: Node, call: QkvCall, build: GraphBuilder) -> tuple[Node, Node, Node]:
    """Return q, k and v as [T, heads, head_dim] of a call that returns them as rows."""

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
    *(
        VendorKernel(
            operator=operator,
            problem=_vllm_problem,
            build=partial(_vllm_build, operator=operator),
            devices=devices,
        )
        # First the one that the library has for some devices, then that for all.
        for operator, devices in (
            ("vllm::qkv_rmsnorm_rope_simt", ("Ascend950",)),
            ("vllm::qkv_rmsnorm_rope", ()),
        )
    ),
)
