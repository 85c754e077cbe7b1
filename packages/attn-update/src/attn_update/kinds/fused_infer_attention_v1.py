"""FIA v1, ``npu_fused_infer_attention_score``: the attention of most decoders.

Schemas: torch_npu 2.13. Causal, sliding window (``sparse_mode=4``), non-causal and quantised caches
are arguments of one operator, so they are one kind.
"""

from __future__ import annotations

from attn_update.kinds.fused_infer_attention import FusedInferAttention


def fused_infer_attention_v1(*, rebind_block_table: bool = False) -> FusedInferAttention:
    """Return the kind of FIA v1.

    Its step arguments are ``actual_seq_lengths`` (query) and ``actual_seq_lengths_kv`` (key).

    Args:
        rebind_block_table: Whether a step may give another ``block_table``.
    """
    return FusedInferAttention(
        functional="npu::npu_fused_infer_attention_score",
        workspace_query="npu::_npu_fused_infer_attention_score_get_max_workspace",
        output_query="npu::_npu_fused_infer_attention_score_infer_output",
        query_lengths="actual_seq_lengths",
        key_lengths="actual_seq_lengths_kv",
        rebind_block_table=rebind_block_table,
    )
