"""vllm-ascend 0.30's FULL graphs under model runner v1, replayed without a host wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.forward_context import get_forward_context
from vllm_ascend.ascend_forward_context import _EXTRA_CTX
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.compilation.updatable_graph import ContextSource, SharedSource

from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.v0_30.adopted_graphs import LaneGraph

if TYPE_CHECKING:
    from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs


class LaneGraphWrapper(ACLGraphWrapper):  # type: ignore[misc]
    """Replaces the engine's wrapper; the lane orders its replays, without a wait of the host."""

    def __init__(self, *, adopted: AdoptedGraphs, **given: Any) -> None:
        # Tells the engine that the caller orders replay and update: it then does not synchronise.
        super().__init__(**{**given, "enable_enpu": True})
        self._adopted = adopted
        self.concrete_aclgraph_entries = ReleasedEntries(adopted.release_all)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Capture or replay the graph of the forward context's batch descriptor."""
        context = get_forward_context()
        if context.cudagraph_runtime_mode != self.runtime_mode:
            return super().__call__(*args, **kwargs)
        key = context.batch_descriptor
        entry = self.concrete_aclgraph_entries.get(key)
        if entry is None or entry.aclgraph is None:
            result = super().__call__(*args, **kwargs)
            entry = self.concrete_aclgraph_entries[key]
            is_draft = _EXTRA_CTX.is_draft_model
            given = self.draft_model_metadata if is_draft else context.attn_metadata
            source = SharedSource(given) if is_draft else ContextSource(given)
            if given is not None:
                entry.aclgraph = self._adopted.adopt(entry.aclgraph, key, source)
            return result
        if not isinstance(entry.aclgraph, LaneGraph):
            # The engine updates this graph itself, in the order that it knows.
            torch.get_device_module("npu").current_stream().synchronize()
        return super().__call__(*args, **kwargs)
