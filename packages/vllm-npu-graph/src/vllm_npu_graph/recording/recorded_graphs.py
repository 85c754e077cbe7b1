"""vLLM-Ascend's FULL graphs, captured with recorded attention and replayed without a host wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.forward_context import get_forward_context
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper

from vllm_npu_graph.released_entries import ReleasedEntries

if TYPE_CHECKING:
    from vllm_npu_graph.recording.attention_update import AttentionUpdate


class RecordedGraphs(ACLGraphWrapper):  # type: ignore[misc]
    """Stands for the engine's wrapper; the lane orders its replays, not a host synchronisation."""

    def __init__(self, *, update: AttentionUpdate, **given: Any) -> None:
        # The engine's word for: the caller orders replay and update, so do not synchronise.
        super().__init__(**{**given, "enable_enpu": True})
        self._update = update
        self.concrete_aclgraph_entries = ReleasedEntries(update.release_all)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Capture or replay the graph of the forward context's batch descriptor."""
        context = get_forward_context()
        if context.cudagraph_runtime_mode != self.runtime_mode:
            return super().__call__(*args, **kwargs)
        key = context.batch_descriptor
        entry = self.concrete_aclgraph_entries.get(key)
        if entry is None or entry.aclgraph is None:
            with self._update.recording(key):
                return super().__call__(*args, **kwargs)
        if self._update.is_recorded(key):
            with self._update.replaying(context):
                return super().__call__(*args, **kwargs)
        # The engine updates this graph itself, in the order that it knows.
        torch.get_device_module("npu").current_stream().synchronize()
        return super().__call__(*args, **kwargs)
