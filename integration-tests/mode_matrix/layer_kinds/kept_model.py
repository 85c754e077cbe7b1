"""A target model whose layers keep memory of sequences, which captures must leave alone."""

from __future__ import annotations

import torch

from mode_matrix.served_model import TargetModel

KEPT = ("state", "cache")


class KeptModel(TargetModel):
    """Decode, prefill and mixed steps of a model whose memory of sequences can be filled."""

    query_lengths = (1,)

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
