"""The default tables of kinds of a recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds.context_parallel_attention import (
    ContextParallelAttention,
    ContextParallelLatentAttention,
)
from attn_update.kinds.device_length_attention import DeviceLengthAttention
from attn_update.kinds.fused_infer_attention import (
    FIA_V1,
    FIA_V2,
    EncoderAttention,
    FusedInferAttention,
)
from attn_update.kinds.latent_attention import LatentAttention
from attn_update.kinds.paged_attention import PagedAttention

if TYPE_CHECKING:
    from attn_update.kinds.context_parallel_attention import ContextParallelRank
    from attn_update.kinds.kind import Kind


def default_kinds() -> dict[str, Kind]:
    """Return a new table from names to kinds with their default options.

    You may add to it. To use a kind with other options, create it from its class and pass it to the
    recorder instead of a name.
    """
    return {
        "encoder_attention": EncoderAttention(),
        "fused_infer_attention_v1": FusedInferAttention(family=FIA_V1),
        "fused_infer_attention_v2": FusedInferAttention(family=FIA_V2),
        "latent_attention_v1": LatentAttention(family=FIA_V1),
        "latent_attention_v2": LatentAttention(family=FIA_V2),
        "paged_attention": PagedAttention(),
        # The sparse attention of SFA.
        "sparse_flash_attention": DeviceLengthAttention(
            operator="npu::npu_sparse_flash_attention",
            length_arguments=frozenset({"actual_seq_lengths_query", "actual_seq_lengths_kv"}),
        ),
    }


def context_parallel_kinds(rank: ContextParallelRank) -> dict[str, Kind]:
    """Return the kinds under context parallelism, to add to `default_kinds`.

    Args:
        rank: This process.
    """
    return {
        "context_parallel_attention": ContextParallelAttention(rank=rank),
        "context_parallel_latent_attention": ContextParallelLatentAttention(rank=rank),
    }
