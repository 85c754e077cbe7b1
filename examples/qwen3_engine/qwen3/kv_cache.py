"""The paged key/value cache.

A *slot* holds the key (or value) of one token of one layer; a *block* is 128 consecutive slots. A
sequence owns whole blocks, in any order; its *block table* lists them, so the token at position
``p`` lies in slot ``block_table[p // 128] * 128 + p % 128``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qwen3_engine.qwen3.model_config import Qwen3Config

# Tokens of one block: what the fused attention operator recommends for a paged cache, and the least
# it takes for prefill (documentation of npu_fused_infer_attention_score, paged attention).
BLOCK_SIZE = 128


def num_blocks_for(num_tokens: int) -> int:
    """Return the number of blocks that hold so many tokens."""
    return -(-num_tokens // BLOCK_SIZE)


def slot(blocks: Sequence[int], position: int) -> int:
    """Return the slot of a position of a sequence with these blocks."""
    return blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


def new_layer_cache(
    config: Qwen3Config, *, num_blocks: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return the zeroed key cache, or value cache, of one layer.

    Returns:
        ``[num_blocks, 128, num_kv_heads * head_dim]``: the paged layout that the fused attention
        operator calls BnBsH. Owned by the model for its whole life; captured graphs hold its
        address.
    """
    shape = (num_blocks, BLOCK_SIZE, config.kv_size)
    return torch.zeros(shape, dtype=dtype, device=device)


def write_cache(states: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Write the new keys, or values, of a layer into the slots of its paged cache, in place.

    Ordinary work of the device, which a graph captures: slots come from a static input.

    Args:
        states: ``[T, num_kv_heads, head_dim]``, of the cache's dtype and device.
        cache: as :func:`new_layer_cache` returns it.
        slot_mapping: ``[T]``, int32, on the device. Rows of padding all name one slot of the
            padding block; which of them is left there does not matter, as no sequence reads it.
    """
    slots = cache.view(-1, cache.shape[-1])
    indices = slot_mapping.unsqueeze(-1)
    torch.ops.npu.npu_scatter_nd_update_(slots, indices, states.reshape(-1, cache.shape[-1]))
