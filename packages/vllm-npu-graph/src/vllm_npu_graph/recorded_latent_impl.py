"""vLLM-Ascend's latent attention (MLA) on FIA v2, whose launch in a captured graph is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.forward_context import get_forward_context
from vllm_ascend.attention.mla_v1 import AscendMLAImpl

from vllm_npu_graph.attention_update import latent_reader

if TYPE_CHECKING:
    import torch

    from vllm_npu_graph.attention_update import AttentionUpdate


class RecordedLatentImpl(AscendMLAImpl):  # type: ignore[misc]
    """The engine's implementation of a layer whose weights are loaded, but for its capture."""

    def __init__(self, impl: object, layer_name: str, update: AttentionUpdate) -> None:
        self.__dict__.update(impl.__dict__)
        self._layer_name = layer_name
        self._update = update

    @staticmethod
    def find_uncovered(impl: Any) -> str | None:
        """Return why a layer with the engine's implementation is left to it; None if it is not."""
        if impl.fa_quant_layer or impl.enable_kv_nz:
            return "latent attention on a quantised cache, or on one in the format NZ"
        return None

    def _forward_decode(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        k_nope: torch.Tensor,
        k_pe: torch.Tensor,
        block_size: int,
        attn_metadata: Any,
        dequant_scale_q_nope: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Capture one launch, of one token a sequence; what is not captured is the engine's own.

        Queries are [sequences, heads, size]; returns [sequences, heads * size of a value].
        """
        if not get_forward_context().capturing:
            return super()._forward_decode(  # type: ignore[no-any-return]
                q_nope, q_pe, k_nope, k_pe, block_size, attn_metadata, dequant_scale_q_nope
            )
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
