"""vLLM-Ascend's implementations of attention, whose launches in captured graphs are recorded."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from vllm_ascend.attention.attention_v1 import SWA_INT_MAX, AscendAttentionBackendImpl
from vllm_ascend.attention.context_parallel.attention_cp import AscendAttentionCPImpl
from vllm_ascend.attention.context_parallel.mla_cp import AscendMlaCPImpl
from vllm_ascend.attention.mla_v1 import AscendMLAImpl

from attn_update.kinds import FIA_V1, FIA_V2, FusedInferAttention, LatentAttention, PagedAttention
from vllm_npu_graph.recording.attention_update import read_latent, read_lengths, read_part
from vllm_npu_graph.recording.recorded_layer import RecordedLayer


class RecordedAttentionImpl(RecordedLayer, AscendAttentionBackendImpl):  # type: ignore[misc]
    """Attention on FIA v1, or on ATB's paged attention: the engine's but for its capture."""

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
        kind = FusedInferAttention(family=FIA_V1, rebind_block_table=window is None)
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
        kind = PagedAttention(rebind_block_table=True)
        self._update.attention(self._layer_name, kind, attn_metadata, arguments, read_lengths)
        return output


class RecordedPartImpl(RecordedLayer, AscendAttentionCPImpl):  # type: ignore[misc]
    """Attention on FIA v1 over a part of the keys (DCP, PCP): the engine's but for its capture."""

    def _forward_decode_pcp_dcp(self, query: torch.Tensor, attn_metadata: Any) -> torch.Tensor:
        """Run one launch and join the parts; returns [sequences, heads, size of a value]."""
        read = partial(read_part, at=(self.pcp_rank, self.dcp_rank))
        with self._recording(FusedInferAttention(family=FIA_V1), attn_metadata, read):
            return super()._forward_decode_pcp_dcp(query, attn_metadata)  # type: ignore[no-any-return]


class RecordedLatentImpl(RecordedLayer, AscendMLAImpl):  # type: ignore[misc]
    """Latent attention (MLA) on FIA v2: the engine's but for its capture."""

    def _forward_decode(self, *given: Any) -> torch.Tensor:
        """Run one launch; returns [tokens, heads * size of a value]."""
        # Steps that draft, or verify drafts, have tables of their own.
        speculates = bool(self.speculative_config)
        kind = LatentAttention(
            family=FIA_V2, rebind_block_table=speculates, allows_fewer_sequences=speculates
        )
        with self._recording(kind, given[5], read_latent):
            return super()._forward_decode(*given)  # type: ignore[no-any-return]


class RecordedLatentPartImpl(RecordedLayer, AscendMlaCPImpl):  # type: ignore[misc]
    """Latent attention on FIA v1 over a part of the keys: the engine's but for its capture."""

    def _forward_decode(self, *given: Any) -> torch.Tensor:
        """Run one launch and join the parts; returns [sequences, heads * size of a value]."""
        with self._recording(LatentAttention(family=FIA_V1), given[5], read_latent):
            return super()._forward_decode(*given)  # type: ignore[no-any-return]


def find_recorded(impl: object) -> Any:
    """Return the class that replaces an implementation of the engine; None if there is none."""
    made = (RecordedAttentionImpl, RecordedPartImpl, RecordedLatentImpl, RecordedLatentPartImpl)
    return next((each for each in made if type(impl) is each.__bases__[-1]), None)


def find_uncovered(impl: Any) -> str | None:
    """Return why a layer with an implementation of the engine is left to it; None if it is not."""
    if find_recorded(impl) is None:
        return type(impl).__name__
    names = ("enable_hamming_sparse", "enable_c8_quant", "fa_quant_layer", "enable_kv_nz")
    if getattr(impl, "sinks", None) is not None or any(getattr(impl, each, 0) for each in names):
        return "sinks, sparse attention, or a cache that is quantised or in the format NZ"
    return None
