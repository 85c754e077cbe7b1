"""A model with sparse attention, whose metadata producers make in front of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds import default_kinds, metadata_kinds
from mode_matrix.layer_kinds.kept_model import KeptModel
from mode_matrix.layer_kinds.sparse_layer import SparseAttentionOperator, SparseLayer
from mode_matrix.layer_kinds.step_metadata import StepMetadata
from mode_matrix.served_model import CAPTURE_SIZES, PREFILL_SIZES
from npu_graph_runtime import runs_eagerly
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from attn_update import ParameterGroup, UpdateLane
    from attn_update.kinds import Kind
    from mode_matrix.served_model import ModelSettings
    from npu_compile import StepProducers
    from npu_graph_runtime import GraphDevice
    from qwen3_engine import Qwen3Model


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

    def load_model(self, settings: ModelSettings, device: GraphDevice) -> Qwen3Model:
        """Load the checkpoint, and replace the attention of all layers; the first has a window."""
        model = super().load_model(settings, device)
        self.metadata = self.metadata_type(
            device,
            max_sequences=max(*CAPTURE_SIZES, settings.max_sequences + 1),
            max_tokens=max(PREFILL_SIZES),
            max_keys=settings.max_blocks * BLOCK_SIZE,
        )
        self.sparse = SparseAttentionOperator(
            model.attention.step_state, self.recorder, self.metadata, runs_eagerly(self.context)
        )
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, Qwen3Layer)
            model.layers[index] = SparseLayer(
                layer,
                self.sparse,
                num_blocks=settings.num_blocks,
                has_indexer=index > 0,
                seed=index,
            )
        return model

    @property
    def kinds(self) -> dict[str, Kind]:
        """Also those whose metadata is made on the device."""
        return {**default_kinds(), **metadata_kinds()}

    @property
    def groups(self) -> dict[str, ParameterGroup]:
        """None: all lengths are read on the device."""
        return {}

    @property
    def producers(self) -> StepProducers | None:
        """What makes lengths and metadata."""
        return self.metadata.step_producers(captured=self._captured)

    @property
    def splitting_ops(self) -> list[str]:
        """The sparse attention."""
        return [self.sparse.name]

    def close(self) -> None:
        """Release graphs and both operators."""
        super().close()
        self.sparse.close()
