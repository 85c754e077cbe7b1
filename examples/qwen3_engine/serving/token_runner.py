"""Running a model that samples its tokens itself: the seam to several decode steps in one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE, slot
from qwen3_engine.serving.block_allocator import PADDING_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qwen3_engine.serving.sequence import Sequence
    from qwen3_engine.serving.step_batch import StepBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingBatch:
    """How the next tokens of the ``S`` sequences of a step are sampled; tensors on the CPU.

    Attributes:
        temperatures: ``[S]``, float32.
        seeds: ``[S]``, int64.
        slots: ``[S, steps]``, int32, the cache slot of the token that each decode step computes;
            after the last token that a sequence wants a slot of the padding block.
    """

    temperatures: torch.Tensor
    seeds: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def of(cls, sequences: Iterable[Sequence], *, steps: int) -> SamplingBatch:
        """Return the inputs of ``steps`` decode steps, or of one prefill step."""
        sequences = tuple(sequences)
        slots = torch.full((len(sequences), steps), PADDING_BLOCK * BLOCK_SIZE, dtype=torch.int32)
        for row, sequence in enumerate(sequences):
            for step in range(sequence.num_wanted(steps)):
                slots[row, step] = slot(sequence.blocks, sequence.num_tokens - 1 + step)
        sampling = [sequence.request.sampling for sequence in sequences]
        return cls(
            temperatures=torch.tensor([each.temperature for each in sampling]),
            seeds=torch.tensor([each.seed for each in sampling]),
            slots=slots,
        )


class TokenRunner(Protocol):
    """Samples the tokens of a step on the device, of a decode step several a sequence.

    Attributes:
        decode_steps: tokens that :meth:`decode_tokens` samples of each sequence.
    """

    decode_steps: int

    def prefill_tokens(self, batch: StepBatch, sampling: SamplingBatch) -> torch.Tensor:
        """Return the next token of each sequence, ``[S, 1]``, int32, on the device."""

    def decode_tokens(self, batch: StepBatch, sampling: SamplingBatch) -> torch.Tensor:
        """Return the next tokens of each sequence, ``[S, decode_steps]``, int32, on the device.

        Args:
            batch: of one token a sequence.
            sampling: of each sequence.
        """
