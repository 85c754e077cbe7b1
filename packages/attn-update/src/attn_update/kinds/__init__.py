"""Attention kinds, one file each."""

from attn_update.kinds.encoder_attention import EncoderAttention, encoder_attention
from attn_update.kinds.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused_infer_attention_v1 import fused_infer_attention_v1
from attn_update.kinds.fused_infer_attention_v2 import fused_infer_attention_v2
from attn_update.kinds.kind_table import default_kinds

__all__ = [
    "EncoderAttention",
    "FusedInferAttention",
    "default_kinds",
    "encoder_attention",
    "fused_infer_attention_v1",
    "fused_infer_attention_v2",
]
