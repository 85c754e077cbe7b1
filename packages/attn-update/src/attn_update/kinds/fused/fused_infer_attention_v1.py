"""FIA v1, ``npu_fused_infer_attention_score``: the attention of most decoders.

Causal, sliding window (``sparse_mode=4``), non-causal and quantised caches are arguments of one
operator, so they are one kind.
"""

from __future__ import annotations

from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.operator_family import FIA_V1


def fused_infer_attention_v1(
    *, rebind_block_table: bool = False, unpadded: bool = False
) -> FusedInferAttention:
    """Return the kind of FIA v1.

    Its step arguments are ``actual_seq_lengths`` (query) and ``actual_seq_lengths_kv`` (key).

    Args:
        rebind_block_table: Whether a step may give another ``block_table``.
        unpadded: Whether a step may have fewer sequences than were captured.
    """
    return FusedInferAttention(
        family=FIA_V1, rebind_block_table=rebind_block_table, unpadded=unpadded
    )
