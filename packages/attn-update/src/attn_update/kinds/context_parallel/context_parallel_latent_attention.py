"""Latent attention (MLA) under context parallelism (DCP and PCP), over FIA v1.

Layouts: ``BNSD`` for one query token of each sequence, ``BSND`` for several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_update.kinds.context_parallel.context_parallel_attention import ContextParallelAttention
from attn_update.kinds.fused.operator_family import FIA_V1
from attn_update.kinds.latent_attention import LatentAttention

if TYPE_CHECKING:
    from attn_update.kinds.context_parallel.context_parallel_rank import ContextParallelRank


@dataclass(frozen=True, kw_only=True)
class ContextParallelLatentAttention(ContextParallelAttention, LatentAttention):
    """Latent attention over this process's part of the keys; heads are gathered, then padded."""


def context_parallel_latent_attention(
    rank: ContextParallelRank, *, rebind_block_table: bool = False
) -> ContextParallelLatentAttention:
    """Return the kind of latent attention under DCP and PCP.

    Args:
        rank: This process.
        rebind_block_table: Whether a step may give another ``block_table``.
    """
    return ContextParallelLatentAttention(
        family=FIA_V1, rank=rank, rebind_block_table=rebind_block_table
    )
