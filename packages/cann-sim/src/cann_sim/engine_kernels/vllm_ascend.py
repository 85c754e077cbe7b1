"""Kernels of vllm-ascend 0.23 that Triton-Ascend compiles for an NPU, under the engine's names.

vLLM calls `register` in each of its processes: it is a plugin of vLLM's group
``vllm.general_plugins``.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from cann_sim.engine_kernels.kernel_call import address, launch, register_operators, require_dense

if TYPE_CHECKING:
    from torch import Tensor

_NAME = "qkv_rmsnorm_rope"
# As the engine declares it.
_SCHEMA = (
    f"{_NAME}(Tensor input, Tensor cos_sin_cache, Tensor positions, Tensor q_weight, "
    "Tensor k_weight, SymInt q_hidden_size, SymInt kv_hidden_size, SymInt head_dim, float eps, "
    "Tensor? q_bias=None, Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
)


def register() -> None:
    """Give the simulated device ``torch.ops.vllm.qkv_rmsnorm_rope``, for as long as the process.

    Does nothing where the simulator is not loaded. The engine registers an operator of this name
    itself where Triton has a driver, which it never has for a simulated device.
    """
    schema = _SCHEMA.removeprefix(_NAME)
    register_operators("vllm", {_NAME: (schema, qkv_rmsnorm_rope, _empty_parts)})


def qkv_rmsnorm_rope(
    qkv: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: Tensor | None = None,
    k_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the kernel: norms of the heads of q and k, and their rotation.

    All tensors are dense and on one simulated device; all except the positions are bfloat16.

    Args:
        qkv: The projections, [T, q_hidden_size + 2 * kv_hidden_size].
        cos_sin_cache: [rows, rotary_dim]; the first half of each row are cosines, the second sines.
        positions: The row of each token, [T], int64.
        q_weight: Weight of the norm of q, [head_dim].
        k_weight: Weight of the norm of k, [head_dim].
        q_hidden_size: Elements of all query heads of a token.
        kv_hidden_size: Elements of all key heads of a token, and of all value heads.
        head_dim: Elements of a head, of which the first rotary_dim are rotated.
        eps: Epsilon of both norms.
        q_bias: Bias added to the norm of q, [head_dim], or None.
        k_bias: Bias added to the norm of k, [head_dim], or None.

    Returns:
        q, k and v, [T, hidden size] each, in new memory.

    Raises:
        ValueError: The kernel does not support a tensor.
    """
    operator = f"vllm::{_NAME}"
    rows, rotary_dim = cos_sin_cache.shape
    tokens = qkv.shape[0]
    if q_hidden_size % head_dim or kv_hidden_size % head_dim:
        raise ValueError(
            f"launching {operator}: expected whole heads of {head_dim}, found {q_hidden_size} "
            f"elements of q and {kv_hidden_size} of k"
        )
    require_dense(operator, "input", qkv, (tokens, q_hidden_size + 2 * kv_hidden_size))
    require_dense(
        operator, "cos_sin_cache", cos_sin_cache, (rows, min(rotary_dim, head_dim) // 2 * 2)
    )
    require_dense(operator, "positions", positions, (tokens,), torch.int64)
    for name, tensor in (("q_weight", q_weight), ("k_weight", k_weight)):
        require_dense(operator, name, tensor, (head_dim,))
    for name, bias in (("q_bias", q_bias), ("k_bias", k_bias)):
        if bias is not None:
            require_dense(operator, name, bias, (head_dim,))
    parts = _empty_parts(qkv, None, None, None, None, q_hidden_size, kv_hidden_size)
    tensors = (qkv, cos_sin_cache, positions, q_weight, k_weight, q_bias, k_bias, *parts)
    sizes = (tokens, q_hidden_size // head_dim, kv_hidden_size // head_dim, head_dim)
    launch(
        operator,
        "cann_sim_qkv_rmsnorm_rope",
        qkv.device,
        *(address(tensor) for tensor in tensors),
        *(ctypes.c_int64(size) for size in (*sizes, rows, rotary_dim)),
        ctypes.c_double(eps),
    )
    return parts


def _empty_parts(
    qkv: Tensor,
    _table: object,
    _positions: object,
    _q_weight: object,
    _k_weight: object,
    q_hidden_size: int,
    kv_hidden_size: int,
    *_others: object,
    **_biases: object,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return new memory for q, k and v."""
    tokens = qkv.shape[0]
    widths = (q_hidden_size, kv_hidden_size, kv_hidden_size)
    q, k, v = (qkv.new_empty((tokens, width)) for width in widths)
    return q, k, v
