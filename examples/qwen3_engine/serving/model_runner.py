"""Running a model on the batches of an engine: the seam to captured execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from qwen3_engine.qwen3.model import Qwen3Model
    from qwen3_engine.serving.step_batch import StepBatch


class ModelRunner(Protocol):
    """Computes the logits of a step; an engine works with any object of this form."""

    def prefill(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of each sequence's last token.

        Args:
            batch: any number of tokens a sequence.

        Returns:
            ``[num_sequences, vocab_size]`` on any device, floating point; valid until the next call
            of the runner, which may reuse the memory.
        """

    def decode(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of a batch of one token a sequence; as :meth:`prefill` otherwise."""


class EagerModelRunner:
    """Runs every operator of the model one by one, on the batch as it is; fits `ModelRunner`.

    Args:
        model: its step state is loaded by this runner.
        device: of the model.
    """

    def __init__(self, model: Qwen3Model, *, device: torch.device | str) -> None:
        self._model = model
        self._device = torch.device(device)

    def prefill(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of each sequence's last token, on the device."""
        return self._run(batch)

    def decode(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of each sequence's only token, on the device."""
        return self._run(batch)

    @torch.no_grad()
    def _run(self, batch: StepBatch) -> torch.Tensor:
        model, device = self._model, self._device
        model.attention.step_state.load(batch.query_lengths, batch.kv_lengths)
        hidden: torch.Tensor = model(
            batch.input_ids.to(device),
            batch.positions.to(device),
            batch.slot_mapping.to(device),
            batch.block_table.to(device),
        )
        if batch.num_tokens != batch.num_sequences:
            hidden = hidden.index_select(0, batch.last_token_rows().to(device))
        return model.compute_logits(hidden)
