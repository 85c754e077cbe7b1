"""vllm-ascend 0.30's latent attention (MLA), whose launches in captured graphs are recorded."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vllm_ascend.attention.context_parallel.mla_cp import AscendMlaDCPImpl
from vllm_ascend.attention.mla_v1 import AscendMLAImpl

from attn_update.kinds import FIA_V1, FIA_V2, LatentAttention
from vllm_npu_graph.recording.attention_update import read_latent
from vllm_npu_graph.recording.recorded_layer import RecordedLayer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from vllm_npu_graph.recording.attention_update import AttentionUpdate


class RecordedLatentImpl(RecordedLayer, AscendMLAImpl):  # type: ignore[misc]
    """Latent attention on FIA v2: the engine's except for its capture."""

    def _forward_decode(
        self, preprocessed: Any, block_size: int, attn_metadata: Any
    ) -> torch.Tensor:
        """Run one launch; returns [tokens, heads * size of a value]."""
        # Steps that draft, or verify drafts, have tables of their own.
        speculates = bool(self.speculative_config)
        kind = LatentAttention(
            family=FIA_V2, rebind_block_table=speculates, allows_fewer_sequences=speculates
        )
        with self._recording(kind, attn_metadata, read_latent):
            return super()._forward_decode(  # type: ignore[no-any-return]
                preprocessed, block_size, attn_metadata
            )


class RecordedLatentPartImpl(RecordedLayer, AscendMlaDCPImpl):  # type: ignore[misc]
    """Latent attention on FIA v1 over a part of the keys (DCP): the engine's except its capture."""

    def _forward_decode(
        self, preprocessed: Any, block_size: int, attn_metadata: Any
    ) -> torch.Tensor:
        """Run one launch and join the parts; returns [tokens, heads * size of a value]."""
        with self._recording(LatentAttention(family=FIA_V1), attn_metadata, read_latent):
            return super()._forward_decode(  # type: ignore[no-any-return]
                preprocessed, block_size, attn_metadata
            )


_RECORDED: Mapping[type, type[Any]] = MappingProxyType(
    {AscendMLAImpl: RecordedLatentImpl, AscendMlaDCPImpl: RecordedLatentPartImpl}
)


def find_layers(compilation_config: Any) -> dict[str, Any]:
    """Return the engine's attention layers by name."""
    layers = compilation_config.static_forward_context
    return {name: layer for name, layer in layers.items() if hasattr(layer, "impl")}


def find_uncovered(compilation_config: Any) -> str | None:
    """Return why the attention of a model is left to the engine; None if it is recorded."""
    for name, layer in find_layers(compilation_config).items():
        if type(layer.impl) not in _RECORDED:
            return f"{name} has {type(layer.impl).__name__}"
        if layer.impl.fa_quant_layer or layer.impl.enable_kv_nz:
            return f"{name} has a cache that is quantised or in the format NZ"
    return None


def record_layers(layers: Mapping[str, Any], update: AttentionUpdate) -> None:
    """Replace the attention of layers by one that is recorded.

    Args:
        layers: From `find_layers`; all have to be covered, or recorded already.
        update: Records them from now on.
    """
    for name, layer in layers.items():
        own = type(layer.impl)
        layer.impl = _RECORDED.get(own, own)(layer.impl, name, update)
