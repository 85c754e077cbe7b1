"""Attention as an engine runs it: recorded, before the device's work, or between segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine_fuzz.engines.fuzzed_model import (
    DTYPE,
    NUM_LAYERS,
    WIDTH,
    FuzzedModel,
    ModelFailure,
    attend,
    attention_arguments,
)
from engine_fuzz.engines.sequences import MAX_SEQUENCES, PREFILL_SIZE
from npu_graph_runtime import GraphContext, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attn_update import Recorder
    from engine_fuzz.episode import Shape


class EngineAttention:
    """The attention of one engine's model.

    Args:
        model: the model whose caches are read.
        shape: shape of the engine.
        context: context of its captures.
        recorder: records attention if steps are captured whole.

    Attributes:
        queries: lengths of the step, in the form of `Batch`, for attention that no update reaches.
        keys: the number of keys of each sequence.
        records: whether the recorder runs attention.
        raises_at: counts down to the call that raises; 0 for none.
    """

    def __init__(
        self, model: FuzzedModel, shape: Shape, context: GraphContext, recorder: Recorder
    ) -> None:
        self.queries: Sequence[int] = (1,)
        self.keys: Sequence[int] = (1,)
        self.records = shape.records and not shape.quirk.startswith("attention")
        self.raises_at = 0
        self._model = model
        self._shape = shape
        self._recorder = recorder
        self._buffers: list[Tensor] = []
        self._run = self._attend
        if shape.mode == "breakable":
            self._run = runs_eagerly(context)(self._attend)
        elif shape.mode != "full":
            rows, device = max(PREFILL_SIZE, MAX_SEQUENCES), model.embed.device
            self._buffers = [
                torch.zeros(rows, WIDTH, dtype=DTYPE, device=device) for _ in range(NUM_LAYERS)
            ]

    def __call__(self, layer: int, query: Tensor, table: Tensor) -> Tensor:
        """Return the attention of all rows of a layer."""
        model = self._model
        given: tuple[Tensor, ...] = ()
        if self._shape.caches_as_arguments:
            given = (model.key_caches[layer], model.value_caches[layer])
        attended = self._run(f"layers.{layer}", layer, query, table, *given)
        if not self._buffers:
            return attended
        # What runs eagerly between captured pieces has to write into a buffer.
        return self._buffers[layer][: query.shape[0]].copy_(attended)

    def _attend(
        self, name: str, layer: int, query: Tensor, table: Tensor, *caches: Tensor
    ) -> Tensor:
        if self.raises_at:
            self.raises_at -= 1
            if not self.raises_at:
                raise ModelFailure(f"attention of {name}")
        # A prefill runner has a row more, for padding, which is a sequence of the batch here.
        table = table[: len(self.queries)]
        arguments = attention_arguments(
            self._model, layer, query, table, queries=self.queries, keys=self.keys
        )
        if caches:
            arguments |= dict(zip(("key", "value"), caches, strict=True))
        if not self.records:
            return attend(arguments)
        kind = "fused_infer_attention_v1"
        return self._recorder.attention(name, kind, arguments)[0].reshape(-1, WIDTH)
