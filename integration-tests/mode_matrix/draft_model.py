"""A draft model whose draft steps are one forward pass, and so one graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from qwen3_engine import Qwen3Model
    from qwen3_engine.qwen3.model import Qwen3Layer


class DraftModel(nn.Module):
    """Proposes tokens greedily, each from the previous one, without leaving the device.

    Every draft step runs the same weights and caches under layer names of its own,
    ``draft.<step>/layers.<index>``, because its attention has lengths of its own.

    Args:
        model: the model that drafts; shared.
        num_steps: draft steps of a forward pass.
    """

    def __init__(self, model: Qwen3Model, *, num_steps: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(_under_names_of(model, f"draft.{n}") for n in range(num_steps))

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return the proposed tokens ``[S, num_steps]``, int32.

        Args:
            input_ids: ``[S]``, int32, the last token of each sequence.
            positions: ``[S]``, int64, its position.
            slot_mapping: ``[S, num_steps]``, int32, its cache slot and those of the drafts.
            block_table: ``[S, max_blocks]``, int32.
        """
        proposed = []
        for number, model in enumerate(self.steps):
            slots = slot_mapping[:, number].contiguous()
            hidden = model(input_ids, positions + number, slots, block_table)
            input_ids = model.compute_logits(hidden).argmax(-1).to(torch.int32)  # type: ignore[operator]
            proposed.append(input_ids)
        return torch.stack(proposed, dim=1)


def _under_names_of(model: Qwen3Model, prefix: str) -> Qwen3Model:
    """Return the same model, its memory shared, with other names of its layers."""
    layers = []
    for layer in model.layers:
        named: Qwen3Layer = copy.copy(layer)  # type: ignore[assignment]
        named.layer_name = f"{prefix}/{layer.layer_name}"
        model.attention.add_layer(named.layer_name)
        layers.append(named)
    view = copy.copy(model)
    view._modules = {**model._modules, "layers": nn.ModuleList(layers)}
    return view
