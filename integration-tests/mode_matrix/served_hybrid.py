"""A model with linear and full attention, served like the models of the mode matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mode_matrix.linear_layer import LinearAttentionOperator, LinearLayer
from mode_matrix.served_model import TargetModel
from mode_matrix.workloads import Workload
from npu_graph_runtime import runs_eagerly
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from mode_matrix.served_model import ModelSettings
    from mode_matrix.workloads import StepKind, Text
    from npu_graph_runtime import GraphDevice
    from qwen3_engine import Qwen3Model


class HybridModel(TargetModel):
    """The target model of the matrix with linear attention in its first layer."""

    query_lengths = (1,)

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

    @property
    def kept(self) -> dict[str, torch.Tensor]:
        """All memory of sequences, by name; row or block 0 belongs to padding."""
        return {
            name: buffer
            for name, buffer in self.model.named_buffers()
            if name.endswith(("state", "key_cache", "value_cache"))
        }

    def poison(self) -> dict[str, torch.Tensor]:
        """Fill the memory of all sequences with random bits, and return a copy on the CPU."""
        generator = torch.Generator().manual_seed(11)
        for buffer in self.kept.values():
            shape = (*buffer.shape[:-1], buffer.shape[-1] * buffer.element_size())
            noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            buffer.copy_(noise.view(buffer.dtype).to(buffer.device))
        return {name: buffer.cpu() for name, buffer in self.kept.items()}

    def clear(self) -> None:
        """Empty the memory of all sequences."""
        for buffer in self.kept.values():
            buffer.zero_()

    def close(self) -> None:
        """Release graphs and both operators."""
        super().close()
        self.linear.close()


class HybridWorkload(Workload):
    """Steps of sequences that begin with an empty state; none of them verifies drafts."""

    def __init__(
        self, kind: StepKind, target: HybridModel, *, settings: ModelSettings, seed: int
    ) -> None:
        self._hybrid = target
        super().__init__(kind, target, None, settings=settings, seed=seed)

    def _new_text(self, place: int) -> Text:
        text = super()._new_text(place)
        self._hybrid.layer.state[text.blocks[0]].zero_()
        return text
