"""Parts of a decoder layer written as engines write them, and inputs for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AttentionHeads:
    """Sizes of the projections of one attention layer.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        eps: Epsilon of the norms of q and k.
    """

    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    eps: float = 1e-6

    @property
    def q_size(self) -> int:
        """Size of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Size of all key heads."""
        return self.num_kv_heads * self.head_dim


def qkv_function(
    heads: AttentionHeads, *, method: str = "reshape", flatten: bool = True
) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function between the projections and attention: split, norms, RoPE.

    Args:
        heads: The sizes.
        method: `reshape` or `view`, how q and k are cut into heads.
        flatten: Whether q and k end as [T, size] or as [T, heads, head_dim].

    Returns:
        A function of `(qkv, q_weight, k_weight, cos, sin)`, see `qkv_inputs`.
    """

    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        npu = torch.ops.npu
        q = getattr(q, method)(-1, heads.num_heads, heads.head_dim)
        k = getattr(k, method)(-1, heads.num_kv_heads, heads.head_dim)
        q = npu.npu_rms_norm(q, q_weight, heads.eps)[0]
        k = npu.npu_rms_norm(k, k_weight, heads.eps)[0]
        q = npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0)
        k = npu.npu_rotary_mul(k.unsqueeze(0), cos, sin).squeeze(0)
        if flatten:
            q, k = q.reshape(-1, heads.q_size), k.reshape(-1, heads.kv_size)
        return q, k, v

    return function


def qkv_inputs(
    heads: AttentionHeads,
    tokens: int = 5,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "meta",
) -> list[Tensor]:
    """Return the inputs of `qkv_function`.

    Returns:
        qkv [tokens, q_size + 2 * kv_size], the weights of both norms [head_dim], cosines and sines
        [1, tokens, 1, head_dim] (random, not of an angle).
    """
    shapes = [
        (tokens, heads.q_size + 2 * heads.kv_size),
        (heads.head_dim,),
        (heads.head_dim,),
        (1, tokens, 1, heads.head_dim),
        (1, tokens, 1, heads.head_dim),
    ]
    return random_tensors(*shapes, dtype=dtype, device=device)
