"""vLLM-Ascend's implementations of attention, whose launches in captured graphs are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.forward_context import get_forward_context
from vllm_ascend.attention.attention_v1 import SWA_INT_MAX, AscendAttentionBackendImpl
from vllm_ascend.attention.mla_v1 import AscendMLAImpl

from vllm_npu_graph.attention_update import latent_reader, read_lengths

if TYPE_CHECKING:
    from vllm_npu_graph.attention_update import AttentionUpdate


class _RecordedImpl:
    """Stands for the engine's implementation of a layer whose weights are loaded."""

    def __init__(self, impl: object, layer_name: str, update: AttentionUpdate) -> None:
        self.__dict__.update(impl.__dict__)
        self._layer_name = layer_name
        self._update = update


class RecordedAttentionImpl(_RecordedImpl, AscendAttentionBackendImpl):  # type: ignore[misc]
    """Attention on FIA v1, or on ATB's paged attention: the engine's but for its capture."""

    @staticmethod
    def find_uncovered(impl: Any) -> str | None:
        """Return why a layer with the engine's implementation is left to it; None if it is not."""
        if impl.sinks is not None:
            return "attention with sinks"
        if impl.enable_hamming_sparse or impl.enable_c8_quant:
            return "sparse attention, or a quantised cache"
        return None

    def full_graph_fia(self, *given: Any) -> tuple[torch.Tensor, int]:
        """Capture one launch; returns the output, [tokens, heads, head size], and the tokens."""
        query, key, value, attn_metadata, output, *_ = given
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

    def full_graph_pa(
        self, query: torch.Tensor, attn_metadata: Any, output: torch.Tensor
    ) -> torch.Tensor:
        """Capture one launch of paged attention, of one token a sequence; returns the output."""
        arguments = {
            "query": query,
            "key_cache": self.key_cache,
            "value_cache": self.value_cache,
            "num_kv_heads": self.num_kv_heads,
            "num_heads": self.num_heads,
            "scale_value": self.scale,
            "block_table": attn_metadata.block_tables,
            # The engine's are longer than any sequence may be, for the size of its workspace.
            "context_lens": [1] * len(query),
            "out": output,
        }
        kind = "paged_attention_rebound"
        self._update.attention(self._layer_name, kind, attn_metadata, arguments, read_lengths)
        return output


class RecordedLatentImpl(_RecordedImpl, AscendMLAImpl):  # type: ignore[misc]
    """Latent attention (MLA) on FIA v2: the engine's but for its capture."""

    @staticmethod
    def find_uncovered(impl: Any) -> str | None:
        """Return why a layer with the engine's implementation is left to it; None if it is not."""
        if impl.fa_quant_layer or impl.enable_kv_nz:
            return "latent attention on a quantised cache, or on one in the format NZ"
        if impl.speculative_config is not None:
            return "latent attention of several tokens a sequence, which verify a draft"
        return None

    def _forward_decode(self, *given: Any) -> torch.Tensor:
        """Capture one launch, of one token a sequence; what is not captured is the engine's own.

        Queries are [sequences, heads, size]; returns [sequences, heads * size of a value].
        """
        if not get_forward_context().capturing:
            return super()._forward_decode(*given)  # type: ignore[no-any-return]
        q_nope, q_pe, k_nope, k_pe, block_size, attn_metadata, *_ = given
        decode, count = attn_metadata.decode, len(q_nope)
        keys = k_nope.view(-1, self.num_kv_heads, block_size, self.kv_lora_rank)
        arguments = {
            "query": q_nope.view(count, self.num_heads, 1, -1).contiguous(),
            "key": keys,
            "value": keys,
            "query_rope": q_pe.view(count, self.num_heads, 1, -1),
            "key_rope": k_pe.view(-1, self.num_kv_heads, block_size, self.qk_rope_head_dim),
            "num_query_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "input_layout": "BNSD_NBSD",
            "softmax_scale": self.scale,
            "block_table": decode.block_table,
            "block_size": block_size,
            "actual_seq_kvlen": decode.seq_lens_list,
        }
        read = latent_reader(decode.block_table)
        output, _ = self._update.attention(
            self._layer_name, "latent_attention_v2", attn_metadata, arguments, read
        )
        return self._v_up_proj(output)  # type: ignore[no-any-return]
