"""Attention kinds, one file per family of operators, and the protocols for your own kinds."""

from attn_update.kinds.attention_geometry import AttentionGeometry, LengthRule, TensorForm
from attn_update.kinds.context_parallel_attention import ContextParallelRank
from attn_update.kinds.device_length_attention import DeviceLengthAttention, MetadataOperator
from attn_update.kinds.flash_attention import FLASH_V3, FlashAttention
from attn_update.kinds.fused_infer_attention import (
    FIA_V1,
    FIA_V2,
    EncoderAttention,
    FusedInferAttention,
    OperatorFamily,
)
from attn_update.kinds.kind import AttentionKind, Kind, RuledKind
from attn_update.kinds.kind_table import context_parallel_kinds, default_kinds, metadata_kinds
from attn_update.kinds.latent_attention import LatentAttention
from attn_update.kinds.lengths import LengthArray
from attn_update.kinds.paged_attention import PagedAttention

__all__ = [
    "FIA_V1",
    "FIA_V2",
    "FLASH_V3",
    "AttentionGeometry",
    "AttentionKind",
    "ContextParallelRank",
    "DeviceLengthAttention",
    "EncoderAttention",
    "FlashAttention",
    "FusedInferAttention",
    "Kind",
    "LatentAttention",
    "LengthArray",
    "LengthRule",
    "MetadataOperator",
    "OperatorFamily",
    "PagedAttention",
    "RuledKind",
    "TensorForm",
    "context_parallel_kinds",
    "default_kinds",
    "metadata_kinds",
]
