"""A model whose layers write caches that other streams read, because layer events say when."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import torch

from npu_graph_runtime import GraphKey, LayerEvents
from npu_graph_testing.attention.sparse_model import (
    BLOCK_SIZE,
    HEADS,
    LATENT_DIM,
    DrawnStep,
    SparseModel,
)

if TYPE_CHECKING:
    from random import Random

LAYERS = 3
NAMES = tuple(f"layers.{layer}.kv" for layer in range(LAYERS))


@dataclass(frozen=True, kw_only=True)
class SentStep(DrawnStep):
    """A step of one key, with what its layers write.

    Attributes:
        hidden: Makes the rows that are written, float16 [tokens, 512] on the device.
        slots: Where each token is written; int32 [tokens, 1] on the device.
        rows: What each layer writes eagerly, a row for each token, on the CPU.
    """

    hidden: torch.Tensor
    slots: torch.Tensor
    rows: list[torch.Tensor]


@dataclass(kw_only=True)
class SendingModel(SparseModel):
    """A graph with an update, with producers, and with an event behind the cache of each layer.

    The rows of a later layer are made from the output of the layer before. All steps write the same
    slots, each in an order of its own, so that what a step reads does not depend on earlier steps.

    Attributes:
        events: Of the graphs of all keys.
    """

    events: LayerEvents
    graph_key: GraphKey = field(init=False)

    def __post_init__(self) -> None:
        """Make what the graph reads besides."""
        super().__post_init__()
        self.graph_key = GraphKey(num_tokens=self.tokens, extra=(self.key,))
        blocks = sorted(set(self.table.flatten().tolist()))
        self._slots = [
            blocks[token % len(blocks)] * BLOCK_SIZE + token // len(blocks)
            for token in range(self.tokens)
        ]
        place = self.device.torch_device
        self.hidden = torch.zeros(self.tokens, LATENT_DIM, dtype=torch.half).to(place)
        self.slots = torch.tensor(self._slots, dtype=torch.int32)[:, None].to(place)

    def layers(
        self,
        ends: torch.Tensor,
        lengths: torch.Tensor,
        chosen: torch.Tensor,
        host: dict[str, list[int]],
    ) -> list[torch.Tensor]:
        """Run all layers; each writes its cache first."""
        self._write(0, self.hidden)
        first = self._sparse(0, ends, lengths, chosen)
        self._write(1, first[:, 0, : HEADS * 16] + self.hidden[:, : HEADS * 16])
        second = self._fused(host)
        self._write(2, second.reshape(self.tokens, -1).repeat(1, 8) + self.hidden)
        return [first, second, self._sparse(2, ends, lengths, chosen)]

    def capture(self) -> None:
        """Capture the graph with its layer events."""
        with self.events.around_capture(self.graph_key):
            super().capture()

    def draw(self, random: Random) -> SentStep:
        """Return a step with what its layers write and give eagerly."""
        generator = torch.Generator().manual_seed(random.randrange(1 << 30))
        hidden = torch.randn(self.hidden.shape, generator=generator).half().to(self.hidden.device)
        order = random.sample(self._slots, self.tokens)
        slots = torch.tensor(order, dtype=torch.int32)[:, None].to(self.hidden.device)
        self.hidden.copy_(hidden)
        self.slots.copy_(slots)
        drawn = super().draw(random)
        rows = [self.read(layer, slots).cpu() for layer in range(LAYERS)]
        given = {each.name: getattr(drawn, each.name) for each in fields(drawn)}
        return SentStep(**given, hidden=hidden, slots=slots, rows=rows)

    def replay_graph(self, drawn: DrawnStep) -> None:
        """Replay the graph, which is one step of the layer events."""
        assert isinstance(drawn, SentStep)
        self.hidden.copy_(drawn.hidden)
        self.slots.copy_(drawn.slots)
        super().replay_graph(drawn)

    def read(self, layer: int, slots: torch.Tensor) -> torch.Tensor:
        """Return the rows of a layer's cache, read on the current stream."""
        return self._rows(layer).index_select(0, slots[:, 0])

    def _rows(self, layer: int) -> torch.Tensor:
        cache = self.fused_cache if layer == 1 else self.caches[layer // 2][0]
        return cache.view(-1, cache.shape[-1])

    def _write(self, layer: int, values: torch.Tensor) -> None:
        torch.ops.npu.npu_scatter_nd_update_(self._rows(layer), self.slots, values)
        self.events.record(NAMES[layer])
