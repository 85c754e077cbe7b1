"""A model in the form of DeepSeek V4: sparse attention, whose metadata is made on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3_engine.layer_kinds.sparse_layer import SparseAttentionOperator, SparseLayer
from qwen3_engine.layer_kinds.step_metadata import StepMetadata
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qwen3_engine.layer_kinds.other_layers import LayerParts


class SparseLayers:
    """Replaces all layers of a model; the first sees a window only. Fits `OtherLayers`.

    Args:
        parts: of the model.
        captured: whether the producers are captured into the graphs.
        metadata_type: makes the buffers of a step.

    Attributes:
        metadata: the buffers.
        producers: what makes lengths and metadata.
    """

    has_updates = False

    def __init__(
        self,
        parts: LayerParts,
        *,
        captured: bool = False,
        metadata_type: type[StepMetadata] = StepMetadata,
    ) -> None:
        self.metadata = metadata_type(
            parts.device,
            max_sequences=parts.max_sequences,
            max_tokens=parts.max_tokens,
            max_keys=parts.max_keys,
        )
        self.producers = self.metadata.step_producers(captured=captured)
        model = parts.model
        self._operator = SparseAttentionOperator(
            model.attention.step_state, parts.recorder, self.metadata, parts.mark
        )
        self.splitting_ops = [self._operator.name]
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, Qwen3Layer)
            model.layers[index] = SparseLayer(
                layer,
                self._operator,
                num_blocks=parts.num_blocks,
                has_indexer=index > 0,
                seed=index,
            )

    def begin(self, blocks: Iterable[int]) -> None:
        """Do nothing: a sequence reads what it has written itself."""

    def close(self) -> None:
        """Release the operator."""
        self._operator.close()
