"""`fx_passes::split_qkv_rms_norm_rope`: an operator with a reference made of `npu::` operators."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from fx_passes.errors import FxPassesError
from fx_passes.normal_form.operator_signature import find_operator
from fx_passes.torch_internals import has_kernel

OPERATOR = "fx_passes::split_qkv_rms_norm_rope"

_SCHEMA = (
    "(Tensor qkv, Tensor q_weight, Tensor k_weight, Tensor cos, Tensor sin, int num_heads, "
    "int num_kv_heads, int head_dim, float eps, Tensor? q_bias=None, Tensor? k_bias=None) -> "
    "(Tensor q, Tensor k, Tensor v)"
)
_DEADLINE_SECONDS = 30.0

Projections = tuple[Tensor, Tensor, Tensor]


def define_operators() -> None:
    """Define the operators of this package in torch, once in a process.

    Harmless when repeated and safe in threads. Called by the rules that use them; importing this
    package defines nothing. torch keeps the definitions until the process ends.

    `fx_passes::split_qkv_rms_norm_rope` takes

    - `qkv` [T, (num_heads + 2 * num_kv_heads) * head_dim], bfloat16, float16 or float32;
    - `q_weight`, `k_weight` [head_dim];
    - `cos`, `sin` [1, T, 1, rotary_dim], halves of the first rotary_dim elements of each head
      rotated (`npu_rotary_mul` in its mode `half`), the others left as they are;
    - `q_bias`, `k_bias` [head_dim], added to the norms, or None;

    and returns `q` [T, num_heads, head_dim], `k` and `v` [T, num_kv_heads, head_dim], contiguous,
    with memory of their own. The reference gives the same bits as the operators it replaces; it
    needs `npu::npu_rms_norm` and `npu::npu_rotary_mul`.

    Raises:
        FxPassesError: Another thread began the definition and did not finish it.
    """
    if find_operator(OPERATOR) is None:
        try:
            torch.library.define(OPERATOR, _SCHEMA)
        except RuntimeError:
            # Another thread was faster. Anything else shows below, as a kernel that never comes.
            if find_operator(OPERATOR) is None:
                raise
        else:
            torch.library.impl(OPERATOR, "CompositeExplicitAutograd", _reference)
            torch.library.register_fake(OPERATOR, _fake)
            return
    _wait_for_kernels()


def _wait_for_kernels() -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not has_kernel(OPERATOR, "Meta"):
        if time.monotonic() > deadline:
            raise FxPassesError(
                f"defining {OPERATOR}: it exists without kernels after {_DEADLINE_SECONDS} s; the "
                "thread that defined it failed, see its error"
            )
        time.sleep(0.001)


def _reference(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    eps: float,
    q_bias: Tensor | None = None,
    k_bias: Tensor | None = None,
) -> Projections:
    q_size, kv_size = num_heads * head_dim, num_kv_heads * head_dim
    q, k, v = torch.ops.aten.split_with_sizes(qkv, [q_size, kv_size, kv_size], -1)
    q = torch.ops.npu.npu_rms_norm(q.reshape(-1, num_heads, head_dim), q_weight, eps)[0]
    k = torch.ops.npu.npu_rms_norm(k.reshape(-1, num_kv_heads, head_dim), k_weight, eps)[0]
    q = _rotated(q if q_bias is None else q + q_bias, cos, sin)
    k = _rotated(k if k_bias is None else k + k_bias, cos, sin)
    v = v.reshape(-1, num_kv_heads, head_dim).clone(memory_format=torch.contiguous_format)
    return q, k, v


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [T, heads, head_dim] with as much of each head rotated as cos has angles for."""
    size = cos.shape[-1]
    rotated: Tensor = torch.ops.npu.npu_rotary_mul(x[..., :size].unsqueeze(0), cos, sin).squeeze(0)
    return rotated if size == x.shape[-1] else torch.cat([rotated, x[..., size:]], -1)


def _fake(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *others: object,
) -> Projections:
    del q_weight, k_weight, cos, sin, others
    q, k, v = (
        qkv.new_empty((qkv.shape[0], count, head_dim))
        for count in (num_heads, num_kv_heads, num_kv_heads)
    )
    return q, k, v
