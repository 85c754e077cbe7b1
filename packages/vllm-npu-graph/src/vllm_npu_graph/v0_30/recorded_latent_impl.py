"""vllm-ascend 0.30's latent attention (MLA), whose launches in captured graphs are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend.attention.mla_v1 import AscendMLAImpl

from attn_update.kinds import FIA_V2, LatentAttention
from vllm_npu_graph.recording.attention_update import read_latent
from vllm_npu_graph.recording.recorded_layer import RecordedLayer

if TYPE_CHECKING:
    import torch


class RecordedLatentImpl(RecordedLayer, AscendMLAImpl):  # type: ignore[misc]
    """Latent attention on FIA v2: the engine's except for its capture."""

    def _forward_decode(self, *given: Any) -> torch.Tensor:
        """Run one launch; returns [tokens, heads * size of a value]."""
        *_, attn_metadata = given
        with self._recording(LatentAttention(family=FIA_V2), attn_metadata, read_latent):
            return super()._forward_decode(*given)  # type: ignore[no-any-return]


def find_uncovered(impl: Any) -> str | None:
    """Return why a layer is left to the engine; None if it is recorded."""
    if type(impl) is not AscendMLAImpl:
        return type(impl).__name__
    if impl.fa_quant_layer or impl.enable_kv_nz:
        return "a cache that is quantised or in the format NZ"
    return None
