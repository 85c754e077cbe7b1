"""Layers with other attention than the model's own, which the engine serves in the same way."""

from qwen3_engine.layer_kinds.linear_layers import LinearLayers
from qwen3_engine.layer_kinds.other_layers import LayerParts, OtherLayers
from qwen3_engine.layer_kinds.sparse_layers import SparseLayers

__all__ = ["LayerParts", "LinearLayers", "OtherLayers", "SparseLayers"]
