"""The eager engine that is compared with: its own weights, caches and counters, no capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine_fuzz.engines.fuzzed_model import FuzzedModel, attend, attention_arguments

if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    from engine_fuzz.engines.sequences import Batch


class Reference:
    """Runs steps eagerly, by torch and its operators alone.

    Attributes:
        model: with weights of its own.
    """

    def __init__(self, torch_device: torch.device, *, seed: int, quirk: str) -> None:
        self.model = FuzzedModel(torch_device, seed=seed, quirk=quirk)
        self._device = torch_device

    def run(self, batch: Batch, factor: Any) -> Tensor:
        """Return the hidden states of the batch's own rows."""

        def attention(layer: int, query: Tensor, table: Tensor) -> Tensor:
            return attend(
                attention_arguments(
                    self.model, layer, query, table, queries=batch.queries, keys=batch.keys
                )
            )

        self.model.attention = attention
        inputs = [each.to(self._device, non_blocking=True) for each in host_tensors(batch)]
        hidden: Tensor = self.model(*inputs, factor)
        return hidden[: batch.num_rows]


def host_tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, slots and block table of a batch in new pinned memory."""
    return (
        torch.tensor(batch.tokens, pin_memory=True),
        torch.tensor(batch.slots, pin_memory=True),
        torch.tensor(batch.table, dtype=torch.int32, pin_memory=True),
    )
