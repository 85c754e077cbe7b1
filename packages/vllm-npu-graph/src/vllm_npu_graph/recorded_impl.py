"""vLLM-Ascend's attention on FIA v1, whose launch in a captured graph is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm_ascend.attention.attention_v1 import SWA_INT_MAX, AscendAttentionBackendImpl

from vllm_npu_graph.attention_update import read_lengths

if TYPE_CHECKING:
    from vllm_npu_graph.attention_update import AttentionUpdate


class RecordedAttentionImpl(AscendAttentionBackendImpl):  # type: ignore[misc]
    """The engine's implementation of a layer whose weights are loaded, but for its capture."""

    def __init__(self, impl: object, layer_name: str, update: AttentionUpdate) -> None:
        self.__dict__.update(impl.__dict__)
        self._layer_name = layer_name
        self._update = update

    @staticmethod
    def find_uncovered(impl: Any) -> str | None:
        """Return why a layer with the engine's implementation is left to it; None if it is not."""
        if impl.sinks is not None:
            return "attention with sinks"
        if impl.enable_hamming_sparse or impl.enable_c8_quant:
            return "sparse attention, or a quantised cache"
        return None

    def full_graph_fia(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        layer: object = None,  # noqa: ARG002
    ) -> tuple[torch.Tensor, int]:
        """Capture one launch; returns the output, [tokens, heads, head size], and the tokens."""
        key, value, block_size, table, lengths = self._get_fia_params(key, value, attn_metadata)
        window, query_lengths = self.sliding_window, attn_metadata.actual_seq_lengths_q
        arguments = {
            "query": query,
            "key": key,
            "value": value,
            "atten_mask": attn_metadata.attn_mask,
            "block_table": table,
            "block_size": block_size,
            "input_layout": "TND",
            "actual_seq_lengths": query_lengths,
            "actual_seq_lengths_kv": lengths,
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "scale": self.scale,
            "sparse_mode": 4 if window else 3 if attn_metadata.causal else 0,
            "pre_tokens": window or SWA_INT_MAX,
            "next_tokens": 0 if window else SWA_INT_MAX,
            "out": [output, torch.empty(1, dtype=query.dtype, device=query.device)],
        }
        # With a window the engine keeps the table that was captured, and writes into it.
        kind = "fused_infer_attention_v1" + ("_rebound" if window is None else "")
        self._update.attention(self._layer_name, kind, attn_metadata, arguments, read_lengths)
        return output.view(-1, self.num_heads, self.head_size), query_lengths[-1]
