"""Graphs of latent attention under vllm-ascend 0.30's model runner v2, updated by a lane."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager, ModelCudaGraphManager
from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager

from vllm_npu_graph.released_entries import ReleasedEntries

if TYPE_CHECKING:
    from vllm_npu_graph.recording.attention_update import AttentionUpdate


class _RecordedCaptures(CudaGraphManager):  # type: ignore[misc]
    """Records the attention of each graph that the next base class captures."""

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
    """Replaces the engine's manager; captures run through `_RecordedCaptures`, replays are steps.

    Args:
        manager: The engine's; its state is taken over.
        update: Records and updates the layers of the model.
    """

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
