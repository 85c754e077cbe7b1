"""A target model whose layers keep memory of sequences, which captures must leave alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch

from mode_matrix.served_model import CAPTURE_SIZES, PREFILL_SIZES, TargetModel
from npu_graph_runtime import runs_eagerly
from qwen3_engine.layer_kinds import LayerParts, OtherLayers
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE

if TYPE_CHECKING:
    from attn_update import ParameterGroup
    from mode_matrix.served_model import ModelSettings
    from npu_compile import StepProducers
    from npu_graph_runtime import GraphDevice
    from qwen3_engine import Qwen3Model

KEPT = ("state", "cache")


class KeptModel(TargetModel):
    """Decode, prefill and mixed steps of a model whose memory of sequences can be filled."""

    query_lengths = (1,)

    @abstractmethod
    def make_layers(self, parts: LayerParts) -> OtherLayers:
        """Replace layers of the model."""

    def load_model(self, settings: ModelSettings, device: GraphDevice) -> Qwen3Model:
        """Load the checkpoint, and replace layers."""
        model = super().load_model(settings, device)
        parts = LayerParts(
            model=model,
            recorder=self.recorder,
            device=device,
            mark=runs_eagerly(self.context),
            num_blocks=settings.num_blocks,
            max_sequences=max(*CAPTURE_SIZES, settings.max_sequences + 1),
            max_tokens=max(PREFILL_SIZES),
            max_keys=settings.max_blocks * BLOCK_SIZE,
        )
        self.layers = self.make_layers(parts)
        return model

    @property
    def groups(self) -> dict[str, ParameterGroup]:
        """None where all lengths are read on the device."""
        return super().groups if self.layers.has_updates else {}

    @property
    def producers(self) -> StepProducers | None:
        """Those of the layers."""
        return self.layers.producers

    @property
    def splitting_ops(self) -> list[str]:
        """All kinds of attention."""
        return self.layers.splitting_ops

    @property
    def kept(self) -> dict[str, torch.Tensor]:
        """All memory of sequences, by name; row or block 0 belongs to padding."""
        buffers = self.model.named_buffers()
        return {name: buffer for name, buffer in buffers if name.endswith(KEPT)}

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

    def begin_sequence(self, blocks: tuple[int, ...]) -> None:
        """Forget what an earlier sequence left in these blocks, where a layer would read it."""
        self.layers.begin(blocks[:1])

    def close(self) -> None:
        """Release graphs and operators."""
        super().close()
        self.layers.close()
