"""A model with linear and full attention, served like the models of the mode matrix."""

from __future__ import annotations

from mode_matrix.layer_kinds.kept_model import KeptModel
from qwen3_engine.layer_kinds import LayerParts, LinearLayers


class HybridModel(KeptModel):
    """The target model of the matrix with linear attention in its first layer."""

    def make_layers(self, parts: LayerParts) -> LinearLayers:
        """Replace the first layer."""
        return LinearLayers(parts)
