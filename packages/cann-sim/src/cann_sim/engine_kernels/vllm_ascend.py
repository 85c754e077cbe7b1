"""Kernels of vllm-ascend 0.23 that Triton-Ascend compiles for an NPU, under the engine's names.

vLLM calls `register` in each of its processes: it is a plugin of vLLM's group
``vllm.general_plugins``.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from cann_sim.activation import is_active

if TYPE_CHECKING:
    from torch import Tensor

_LIBRARY = "libcann_sim_engine_kernels.so"
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
    if not is_active() or hasattr(torch.ops.vllm, _NAME):
        return
    name = f"vllm::{_NAME}"
    torch.library.define(name, _SCHEMA.removeprefix(_NAME))
    torch.library.impl(name, "npu", qkv_rmsnorm_rope)
    torch.library.register_fake(name, _empty_parts)


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
    rows, rotary_dim = cos_sin_cache.shape
    tokens = qkv.shape[0]
    if q_hidden_size % head_dim or kv_hidden_size % head_dim:
        raise ValueError(
            f"launching vllm::{_NAME}: expected whole heads of {head_dim}, found {q_hidden_size} "
            f"elements of q and {kv_hidden_size} of k"
        )
    _require("input", qkv, (tokens, q_hidden_size + 2 * kv_hidden_size))
    _require("cos_sin_cache", cos_sin_cache, (rows, min(rotary_dim, head_dim) // 2 * 2))
    _require("positions", positions, (tokens,), torch.int64)
    for name, tensor in (("q_weight", q_weight), ("k_weight", k_weight)):
        _require(name, tensor, (head_dim,))
    for name, bias in (("q_bias", q_bias), ("k_bias", k_bias)):
        if bias is not None:
            _require(name, bias, (head_dim,))
    parts = _empty_parts(qkv, None, None, None, None, q_hidden_size, kv_hidden_size)
    launch = ctypes.CDLL(_LIBRARY).cann_sim_qkv_rmsnorm_rope
    tensors = (qkv, cos_sin_cache, positions, q_weight, k_weight, q_bias, k_bias, *parts)
    sizes = (tokens, q_hidden_size // head_dim, kv_hidden_size // head_dim, head_dim)
    code = launch(
        # Reading the handle waits until torch_npu's queue has handed over what was launched before.
        ctypes.c_void_p(torch.get_device_module("npu").current_stream(qkv.device).npu_stream),
        *(ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors),
        *(ctypes.c_int64(size) for size in (*sizes, rows, rotary_dim)),
        ctypes.c_double(eps),
    )
    if code != 0:
        raise RuntimeError(f"launching vllm::{_NAME}: the simulated device answered {code}")
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


def _require(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16
) -> None:
    """Refuse a tensor of another shape, dtype or layout than the kernel reads."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(
            f"launching vllm::{_NAME}: expected {name!r} to be {dtype} {list(shape)}, densely, "
            f"found {tensor.dtype} {list(tensor.shape)} with strides {list(tensor.stride())}"
        )
