"""Attention kinds, one file each."""

from attn_update.kinds.context_parallel.context_parallel_attention import (
    ContextParallelAttention,
    context_parallel_attention,
)
from attn_update.kinds.context_parallel.context_parallel_latent_attention import (
    ContextParallelLatentAttention,
    context_parallel_latent_attention,
)
from attn_update.kinds.context_parallel.context_parallel_rank import ContextParallelRank
from attn_update.kinds.device_length_attention import DeviceLengthAttention, sparse_flash_attention
from attn_update.kinds.encoder_attention import EncoderAttention, encoder_attention
from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.fused_infer_attention_v1 import fused_infer_attention_v1
from attn_update.kinds.fused.fused_infer_attention_v2 import fused_infer_attention_v2
from attn_update.kinds.fused.operator_family import FIA_V1, FIA_V2, OperatorFamily
from attn_update.kinds.kind_table import context_parallel_kinds, default_kinds
from attn_update.kinds.latent_attention import (
    LatentAttention,
    latent_attention_v1,
    latent_attention_v2,
)
from attn_update.kinds.paged_attention import PagedAttention, paged_attention

__all__ = [
    "FIA_V1",
    "FIA_V2",
    "ContextParallelAttention",
    "ContextParallelLatentAttention",
    "ContextParallelRank",
    "DeviceLengthAttention",
    "EncoderAttention",
    "FusedInferAttention",
    "LatentAttention",
    "OperatorFamily",
    "PagedAttention",
    "context_parallel_attention",
    "context_parallel_kinds",
    "context_parallel_latent_attention",
    "default_kinds",
    "encoder_attention",
    "fused_infer_attention_v1",
    "fused_infer_attention_v2",
    "latent_attention_v1",
    "latent_attention_v2",
    "paged_attention",
    "sparse_flash_attention",
]
