"""FIA v2, ``npu_fused_infer_attention_score_v2``: attention with learnable sinks, and MLA.

Schemas: torch_npu 2.13.
"""

from __future__ import annotations

from attn_update.kinds.fused_infer_attention import FusedInferAttention


def fused_infer_attention_v2(*, rebind_block_table: bool = False) -> FusedInferAttention:
    """Return the kind of FIA v2.

    Its step arguments are ``actual_seq_qlen`` (query) and ``actual_seq_kvlen`` (key).

    Args:
        rebind_block_table: Whether a step may give another ``block_table``.
    """
    return FusedInferAttention(
        functional="npu::npu_fused_infer_attention_score_v2",
        workspace_query="npu::_npu_fused_infer_attention_score_v2_get_max_workspace",
        output_query="npu::_npu_fused_infer_attention_score_v2_infer_output",
        query_lengths="actual_seq_qlen",
        key_lengths="actual_seq_kvlen",
        rebind_block_table=rebind_block_table,
    )
