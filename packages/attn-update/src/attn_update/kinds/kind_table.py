"""The tables of kinds that a recorder uses unless the caller gives another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds.context_parallel.context_parallel_attention import context_parallel_attention
from attn_update.kinds.context_parallel.context_parallel_latent_attention import (
    context_parallel_latent_attention,
)
from attn_update.kinds.device_length_attention import sparse_flash_attention
from attn_update.kinds.encoder_attention import encoder_attention
from attn_update.kinds.fused.fused_infer_attention_v1 import fused_infer_attention_v1
from attn_update.kinds.fused.fused_infer_attention_v2 import fused_infer_attention_v2
from attn_update.kinds.latent_attention import latent_attention_v1, latent_attention_v2
from attn_update.kinds.paged_attention import paged_attention

if TYPE_CHECKING:
    from attn_update.kinds.context_parallel.context_parallel_rank import ContextParallelRank
    from attn_update.kinds.kind import Kind


def default_kinds() -> dict[str, Kind]:
    """Return a new table from kind names to kinds; the caller may add to it.

    The names ending in ``_rebound`` take a block table at every step. Those ending in ``_unpadded``
    do too, and also fewer sequences than were captured.
    """
    kinds: dict[str, Kind] = {"encoder_attention": encoder_attention()}
    for name, make in (
        ("fused_infer_attention_v1", fused_infer_attention_v1),
        ("fused_infer_attention_v2", fused_infer_attention_v2),
        ("latent_attention_v1", latent_attention_v1),
        ("latent_attention_v2", latent_attention_v2),
    ):
        kinds[name] = make()
        kinds[f"{name}_rebound"] = make(rebind_block_table=True)
        kinds[f"{name}_unpadded"] = make(rebind_block_table=True, unpadded=True)
    kinds["sparse_flash_attention"] = sparse_flash_attention()
    kinds["paged_attention"] = paged_attention()
    kinds["paged_attention_rebound"] = paged_attention(rebind_block_table=True)
    return kinds


def context_parallel_kinds(rank: ContextParallelRank) -> dict[str, Kind]:
    """Return the kinds under context parallelism, to add to `default_kinds`.

    Args:
        rank: This process.
    """
    return {
        "context_parallel_attention": context_parallel_attention(rank),
        "context_parallel_attention_rebound": context_parallel_attention(
            rank, rebind_block_table=True
        ),
        "context_parallel_latent_attention": context_parallel_latent_attention(rank),
        "context_parallel_latent_attention_rebound": context_parallel_latent_attention(
            rank, rebind_block_table=True
        ),
    }
