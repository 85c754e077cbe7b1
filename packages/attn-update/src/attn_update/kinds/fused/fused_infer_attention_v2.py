"""FIA v2, ``npu_fused_infer_attention_score_v2``: attention with learnable sinks."""

from __future__ import annotations

from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.operator_family import FIA_V2


def fused_infer_attention_v2(
    *, rebind_block_table: bool = False, unpadded: bool = False
) -> FusedInferAttention:
    """Return the kind of FIA v2.

    Its step arguments are ``actual_seq_qlen`` (query) and ``actual_seq_kvlen`` (key).

    Args:
        rebind_block_table: Whether a step may give another ``block_table``.
        unpadded: Whether a step may have fewer sequences than were captured.
    """
    return FusedInferAttention(
        family=FIA_V2, rebind_block_table=rebind_block_table, unpadded=unpadded
    )
