"""A model with sparse attention, whose metadata producers make in front of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds import default_kinds, metadata_kinds
from mode_matrix.layer_kinds.kept_model import KeptModel
from qwen3_engine.layer_kinds import LayerParts, SparseLayers
from qwen3_engine.layer_kinds.step_metadata import StepMetadata

if TYPE_CHECKING:
    from attn_update import UpdateLane
    from attn_update.kinds import Kind
    from mode_matrix.served_model import ModelSettings
    from npu_graph_runtime import GraphDevice


class SparseModel(KeptModel):
    """The target model of the matrix with sparse attention in all its layers.

    Args:
        captured: whether the producers are captured into the graphs.

    Attributes:
        metadata: the buffers of a step.
    """

    metadata_type = StepMetadata

    def __init__(
        self,
        settings: ModelSettings,
        mode: str,
        *,
        device: GraphDevice,
        lane: UpdateLane,
        captured: bool = False,
    ) -> None:
        self._captured = captured
        super().__init__(settings, mode, device=device, lane=lane)

    def make_layers(self, parts: LayerParts) -> SparseLayers:
        """Replace all layers."""
        made = SparseLayers(parts, captured=self._captured, metadata_type=self.metadata_type)
        self.metadata = made.metadata
        return made

    @property
    def kinds(self) -> dict[str, Kind]:
        """Also those whose metadata is made on the device."""
        return {**default_kinds(), **metadata_kinds()}
