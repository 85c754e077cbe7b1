"""A small decoder whose tensors lie wherever engines keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from engine_fuzz.engines.sequences import BLOCK_SIZE, NUM_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_LAYERS = 2
NUM_HEADS = 4
NUM_KEY_HEADS = 2
HEAD_SIZE = 16
WIDTH = NUM_HEADS * HEAD_SIZE
CACHE_WIDTH = NUM_KEY_HEADS * HEAD_SIZE
VOCABULARY = 61
DTYPE = torch.float16

Attention: TypeAlias = Callable[[int, Tensor, Tensor], Tensor]
"""Takes layer, queries and block table; returns the attention of all rows."""


class ModelFailure(Exception):  # noqa: N818 - what a model of a user raises has any name
    """Raised by a model, as a user's own code may."""


class FuzzedModel(nn.Module):
    """Two layers; parameters, a buffer, and tensors in an attribute, a list and another object.

    Args:
        torch_device: of all tensors.
        seed: of the weights.
        quirk: one of `episode.QUIRKS`, or empty.

    Attributes:
        attention: called by each layer; the engine sets it.
        key_caches: a tensor a layer.
        value_caches: The same of the values.
    """

    gain: Tensor
    load: Tensor

    def __init__(self, torch_device: torch.device, *, seed: int, quirk: str = "") -> None:
        super().__init__()
        self.attention: Attention = _no_attention
        self._quirk = quirk
        random = torch.Generator().manual_seed(seed)

        def values(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, generator=random) * shape[-1] ** -0.5
            made: Tensor = drawn.to(DTYPE).to(torch_device)
            return made

        def weights(*shape: int) -> nn.ParameterList:
            return nn.ParameterList(
                nn.Parameter(values(*shape), requires_grad=False) for _ in range(NUM_LAYERS)
            )

        self.embed = nn.Parameter(values(VOCABULARY, WIDTH), requires_grad=False)
        self.query = weights(WIDTH, WIDTH)
        self.key_value = weights(2 * CACHE_WIDTH, WIDTH)
        self.output = weights(WIDTH, WIDTH)
        self.register_buffer("gain", values(WIDTH) + 1)
        self.register_buffer("load", torch.zeros(1, device=torch_device))
        self.count = torch.zeros(1, device=torch_device)
        self.offset = values(WIDTH)
        self.tables = [values(WIDTH)]
        self.settings = SimpleNamespace(shift=values(WIDTH))
        self.workspace: Tensor | None = None
        self._closure: list[Tensor] = []
        shape = (NUM_BLOCKS, BLOCK_SIZE, CACHE_WIDTH)
        self.key_caches = [values(*shape) for _ in range(NUM_LAYERS)]
        self.value_caches = [values(*shape) for _ in range(NUM_LAYERS)]

    def forward(self, tokens: Tensor, slots: Tensor, table: Tensor, factor: Any = 1) -> Tensor:
        """Return hidden states by row."""
        hidden, query = self.before_attention(tokens, slots)
        for layer in range(NUM_LAYERS - 1):
            attended = self.attention(layer, query, table)
            hidden, query = self.between_attention(layer, hidden, attended, slots)
        attended = self.attention(NUM_LAYERS - 1, query, table)
        return self.after_attention(hidden, attended, factor)

    def before_attention(self, tokens: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden states and queries of the first layer."""
        hidden = nn.functional.embedding(tokens, self.embed) + self.offset
        return hidden, self._query(0, hidden, slots)

    def between_attention(
        self, layer: int, hidden: Tensor, attended: Tensor, slots: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run a layer; give its hidden states and the queries of the next layer."""
        hidden = hidden + attended @ self.output[layer].T
        hidden = hidden * self.gain + self.tables[0]
        return hidden, self._query(layer + 1, hidden, slots)

    def after_attention(self, hidden: Tensor, attended: Tensor, factor: Any) -> Tensor:
        """Run the last layer; give its hidden states."""
        hidden = hidden + attended @ self.output[NUM_LAYERS - 1].T + self.settings.shift
        hidden = hidden * number_of(factor)
        if self._quirk == "rebinds a buffer":
            self.load = self.load + 1
        else:
            self.load.add_(1)
        if self._quirk == "rebinds an attribute":
            self.count = self.count + 1
        elif self._quirk == "keeps a workspace":
            if self.workspace is None:
                self.workspace = torch.zeros(1, device=hidden.device)
            hidden = hidden + self.workspace.add_(1).to(DTYPE)
        elif self._quirk == "keeps a workspace in a closure":
            if not self._closure:
                self._closure.append(torch.zeros(1, device=hidden.device))
            hidden = hidden + self._closure[0].add_(1).to(DTYPE)
        return hidden

    def mend(self) -> None:
        """Give the quirk up, as a user does whose capture was refused for it."""
        self._quirk = ""

    def counters(self) -> Iterator[Tensor]:
        """Yield the step counters, in memory that outlives the steps."""
        yield self.load
        if self._quirk == "rebinds an attribute":
            yield self.count
        if self._quirk.startswith("keeps a workspace"):
            yield from self._closure
            if self.workspace is not None:
                yield self.workspace

    def set_counters(self, steps: int) -> None:
        """Write the number of steps into the counters, in place."""
        for counter in self.counters():
            counter.fill_(steps)

    def caches(self) -> Iterator[Tensor]:
        """Yield all caches."""
        yield from self.key_caches
        yield from self.value_caches

    def _query(self, layer: int, hidden: Tensor, slots: Tensor) -> Tensor:
        pair = hidden @ self.key_value[layer].T
        for cache, values in (
            (self.key_caches[layer], pair[:, :CACHE_WIDTH]),
            (self.value_caches[layer], pair[:, CACHE_WIDTH:]),
        ):
            rows = cache.view(-1, CACHE_WIDTH)
            torch.ops.npu.npu_scatter_nd_update_(rows, slots[:, None], values.contiguous())
        query: Tensor = hidden @ self.query[layer].T
        return query


def attention_arguments(
    model: FuzzedModel,
    layer: int,
    query: Tensor,
    table: Tensor,
    *,
    queries: Sequence[int],
    keys: Sequence[int],
) -> dict[str, Any]:
    """Return the arguments of the attention of a layer, as the recorder takes them."""
    return {
        "query": query.view(-1, NUM_HEADS, HEAD_SIZE),
        "key": model.key_caches[layer],
        "value": model.value_caches[layer],
        "block_table": table,
        "block_size": BLOCK_SIZE,
        "input_layout": "TND",
        "num_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KEY_HEADS,
        "scale": HEAD_SIZE**-0.5,
        "actual_seq_lengths": list(queries),
        "actual_seq_lengths_kv": list(keys),
    }


def attend(arguments: dict[str, Any]) -> Tensor:
    """Run attention by the operator itself."""
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    attended: Tensor = torch.ops.npu.npu_fused_infer_attention_score(*tensors, **arguments)[0]
    return attended.reshape(-1, WIDTH)


def number_of(factor: Any) -> float:
    """Return the number that a plain value of any type encodes."""
    if isinstance(factor, (range, str, frozenset)):
        return float(len(factor))
    if isinstance(factor, slice):
        return float(factor.stop)
    if isinstance(factor, np.ndarray):
        return float(factor.sum())
    if isinstance(factor, (list, tuple)):
        return float(sum(factor))
    if isinstance(factor, dict):
        return float(sum(factor.values()))
    return 1.0 if factor is None else float(factor)


def _no_attention(layer: int, query: Tensor, table: Tensor) -> Tensor:
    raise NotImplementedError(f"attention of layer {layer} is not set")
