"""A model with linear and full attention, served like the models of the mode matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mode_matrix.layer_kinds.kept_model import KeptModel
from mode_matrix.layer_kinds.linear_layer import LinearAttentionOperator, LinearLayer
from npu_graph_runtime import runs_eagerly
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from mode_matrix.served_model import ModelSettings
    from npu_graph_runtime import GraphDevice
    from qwen3_engine import Qwen3Model


class HybridModel(KeptModel):
    """The target model of the matrix with linear attention in its first layer."""

    def load_model(self, settings: ModelSettings, device: GraphDevice) -> Qwen3Model:
        """Load the checkpoint, and replace the attention of the first layer."""
        model = super().load_model(settings, device)
        self.linear = LinearAttentionOperator(
            model.attention.step_state, runs_eagerly(self.context)
        )
        first = model.layers[0]
        assert isinstance(first, Qwen3Layer)
        model.layers[0] = self.layer = LinearLayer(first, self.linear, settings.num_blocks)
        return model

    @property
    def splitting_ops(self) -> list[str]:
        """Both kinds of attention."""
        return [*super().splitting_ops, self.linear.name]

    def begin_sequence(self, blocks: tuple[int, ...]) -> None:
        """Begin with an empty state."""
        self.layer.state[blocks[0]].zero_()

    def close(self) -> None:
        """Release graphs and both operators."""
        super().close()
        self.linear.close()
