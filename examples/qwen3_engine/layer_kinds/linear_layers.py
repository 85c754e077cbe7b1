"""A hybrid model: linear attention in the first layer, full attention in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3_engine.layer_kinds.linear_layer import LinearAttentionOperator, LinearLayer
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qwen3_engine.layer_kinds.other_layers import LayerParts


class LinearLayers:
    """Replaces the first layer of a model. Fits `OtherLayers`.

    Args:
        parts: of the model.
    """

    has_updates = True
    producers = None

    def __init__(self, parts: LayerParts) -> None:
        attention = parts.model.attention
        self._operator = LinearAttentionOperator(attention.step_state, parts.mark)
        first = parts.model.layers[0]
        assert isinstance(first, Qwen3Layer)
        self._layer = LinearLayer(first, self._operator, parts.num_blocks)
        parts.model.layers[0] = self._layer
        self.splitting_ops = [attention.name, self._operator.name]

    def begin(self, blocks: Iterable[int]) -> None:
        """Begin with empty states."""
        for block in blocks:
            self._layer.state[block].zero_()

    def close(self) -> None:
        """Release the operator."""
        self._operator.close()
