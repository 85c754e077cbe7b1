"""The operators of one fused attention, and what its arguments are called.

The fused attention operators come as four: the functional one, its ``.out`` overload (the one that
can be updated), a query for the largest workspace, and one that allocates the outputs. Their
versions differ in names only, so a kind is written once over a family.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OperatorFamily:
    """One version of fused attention.

    Attributes:
        functional: The operator that allocates its outputs, ``namespace::name``.
        workspace_query: The operator that returns a workspace for the largest lengths.
        output_query: The operator that allocates the outputs.
        query_lengths: The name of the argument of query lengths.
        key_lengths: The name of the argument of key lengths.
        heads: The name of the number of query heads.
        softmax_lse: The name of the flag that asks for the logarithm of the softmax sums.
    """

    functional: str
    workspace_query: str
    output_query: str
    query_lengths: str
    key_lengths: str
    heads: str
    softmax_lse: str

    @property
    def updatable(self) -> str:
        """The ``.out`` overload, which takes a workspace and can be updated."""
        return f"{self.functional}.out"


FIA_V1 = OperatorFamily(
    functional="npu::npu_fused_infer_attention_score",
    workspace_query="npu::_npu_fused_infer_attention_score_get_max_workspace",
    output_query="npu::_npu_fused_infer_attention_score_infer_output",
    query_lengths="actual_seq_lengths",
    key_lengths="actual_seq_lengths_kv",
    heads="num_heads",
    softmax_lse="softmax_lse_flag",
)
"""FIA v1; schemas of torch_npu 2.10 to 2.14."""

FIA_V2 = OperatorFamily(
    functional="npu::npu_fused_infer_attention_score_v2",
    workspace_query="npu::_npu_fused_infer_attention_score_v2_get_max_workspace",
    output_query="npu::_npu_fused_infer_attention_score_v2_infer_output",
    query_lengths="actual_seq_qlen",
    key_lengths="actual_seq_kvlen",
    heads="num_query_heads",
    softmax_lse="return_softmax_lse",
)
"""FIA v2; schemas of torch_npu 2.10 to 2.14."""
