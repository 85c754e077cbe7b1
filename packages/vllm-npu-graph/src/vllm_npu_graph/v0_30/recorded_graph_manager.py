"""Graphs of latent attention under vllm-ascend 0.30's model runner v2, updated by a lane."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager, ModelCudaGraphManager
from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager
from vllm_ascend.worker.v2.spec_decode.autoregressive.aclgraph import AutoRegressiveAclGraphManager

from vllm_npu_graph.recording.draft_update import DraftUpdate, by_launch
from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.v0_30.recorded_latent_impl import record_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update import UpdateLane
    from vllm_npu_graph.recording.attention_update import AttentionUpdate


class _RecordedCaptures(CudaGraphManager):  # type: ignore[misc]
    """Records the attention of each graph that the next base class captures."""

    _update: AttentionUpdate

    def capture(self, create_forward_fn: Any, *args: Any) -> None:
        with ExitStack() as recording:

            def create_forward(desc: Any, warmup: bool) -> Any:
                recording.close()  # of the previous graph
                forward = create_forward_fn(desc, warmup)
                if desc.cg_mode == CUDAGraphMode.FULL and not warmup:
                    recording.enter_context(self._update.recording(desc))
                return forward

            super().capture(create_forward, *args)


class RecordedGraphManager(ModelAclGraphManager, _RecordedCaptures):  # type: ignore[misc]
    """Takes over the engine's manager; `_RecordedCaptures` sees captures, and replays are steps."""

    def __init__(self, manager: ModelAclGraphManager, update: AttentionUpdate) -> None:
        self.__dict__.update(manager.__dict__)
        self._update = update
        self.graphs = ReleasedEntries(update.release_all)

    def _graph_relay(self, backend: Any, desc: Any, num_tokens: int, attn_metadata: Any) -> Any:
        """Replay a graph; the lane updates it if it was recorded."""
        if not self._update.is_recorded(desc):
            return super()._graph_relay(backend, desc, num_tokens, attn_metadata)
        with self._update.step(desc, attn_metadata):
            return ModelCudaGraphManager.run_fullgraph(self, desc)  # without the engine's update


class RecordedDraftManager(AutoRegressiveAclGraphManager):  # type: ignore[misc]
    """Takes over one of the engine's managers of a draft: of its first step, or of all others.

    The one that captures records the layers.
    """

    def __init__(
        self, manager: AutoRegressiveAclGraphManager, lane: UpdateLane, layers: Mapping[str, Any]
    ) -> None:
        self.__dict__.update(manager.__dict__)
        further = self.speculator.num_speculative_steps - 1
        self._layers = layers
        self.update = DraftUpdate(lane, layers, 1 if self.is_draft_model_prefill else further)
        self.graphs = ReleasedEntries(self.update.release_all)

    def capture(self, forward_fn: Any, *args: Any, **kwargs: Any) -> None:
        """Capture the graphs, and record the attention of each."""
        record_layers(self._layers, self.update)

        def forward(num_reqs: int, second: Any, third: Any, *others: Any) -> Any:
            if not torch.get_device_module("npu").is_current_stream_capturing():
                return forward_fn(num_reqs, second, third, *others)
            tokens = second if self.is_draft_model_prefill else third.num_tokens
            with self.update.recording((num_reqs, tokens)):
                return forward_fn(num_reqs, second, third, *others)

        super().capture(forward, *args, **kwargs)

    def _graph_replay(self, desc: Any, backend: Any, tokens: int, config: Any, steps: Any) -> Any:
        """Replay a graph; the lane updates it if it was recorded."""
        key = desc.num_reqs, desc.num_tokens
        if not self.update.is_recorded(key):
            return super()._graph_replay(desc, backend, tokens, config, steps)
        with self.update.step(key, by_launch(steps)):
            return CudaGraphManager.run_fullgraph(self, desc)  # without the engine's update
