"""The engine's attention of one layer, whose operator call is recorded during a capture."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm_ascend.ascend_forward_context import _EXTRA_CTX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_update.kinds import FusedInferAttention
    from vllm_npu_graph.recording.attention_update import AttentionUpdate


class RecordedLayer:
    """Takes over the attributes of the engine's implementation of a layer with loaded weights."""

    def __init__(self, impl: object, layer_name: str, update: AttentionUpdate) -> None:
        self.__dict__.update(impl.__dict__)
        self._layer_name = layer_name
        self._update = update

    @contextmanager
    def _recording(self, kind: FusedInferAttention, metadata: Any, read: Any) -> Iterator[None]:
        """Let a capture record the engine's eager call instead of the engine's own capture code."""
        if not _EXTRA_CTX.capturing:
            yield
            return
        _EXTRA_CTX.capturing = False
        name, pad = self._layer_name, not kind.allows_fewer_sequences
        try:
            with self._update.recording_layer(name, kind, metadata, read, pad=pad):
                yield
        finally:
            _EXTRA_CTX.capturing = True
