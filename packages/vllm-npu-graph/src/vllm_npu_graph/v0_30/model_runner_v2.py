"""vllm-ascend 0.30's model runner v2, with decode graphs that an update lane updates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm_ascend.compilation.updatable_graph import ContextSource
from vllm_ascend.utils import use_updatable_graph
from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager, ModelWithContext
from vllm_ascend.worker.v2.model_runner import NPUModelRunner

from npu_graph_runtime import NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs
from vllm_npu_graph.v0_30.breakable_graphs import BreakableGraphs, capturing
from vllm_npu_graph.v0_30.recorded_graph_manager import RecordedGraphManager
from vllm_npu_graph.v0_30.recorded_latent_impl import find_layers, find_uncovered, record_layers

if TYPE_CHECKING:
    import torch

    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None for models and modes that are not covered."""

    attention_update: AdoptedGraphs | AttentionUpdate | None = None

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.cudagraph_manager: Any
        self._options = options
        # One for all captures: the engine captures again when it wakes up.
        self._npu = NpuDevice(self.device.index or 0)

    def initialize_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Create the engine's graph manager, and replace it if its graphs are covered."""
        super().initialize_kv_cache(*args, **kwargs)
        if self._options.graphs:
            self._take_breakable()
        if not self._options.attention:
            return
        reason = self._find_reason()
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        lane = open_lane(self._npu, self._options)
        if self._has_tasks():
            adopted = self.attention_update = AdoptedGraphs(lane)
            self.cudagraph_manager = _LaneGraphManager(self.cudagraph_manager, adopted)
        else:
            layers = find_layers(self.compilation_config)
            update = self.attention_update = AttentionUpdate(lane, layers)
            record_layers(layers, update)
            self.cudagraph_manager = RecordedGraphManager(self.cudagraph_manager, update)
        told = (lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates attention by %s (%s)", *told)

    def capture_model(self, *args: Any, **kwargs: Any) -> int:
        """Capture all graphs; return the bytes that they took.

        Raises:
            GraphRuntimeError: With the key ``graphs``: the device refused a capture, or a graph
                would use memory that does not stay.
        """
        graphs = self.cudagraph_manager.breakable_cg_runner
        if not isinstance(graphs, BreakableGraphs):
            return super().capture_model(*args, **kwargs)  # type: ignore[no-any-return]
        with capturing(graphs, self._npu):
            return super().capture_model(*args, **kwargs)  # type: ignore[no-any-return]

    def _take_breakable(self) -> None:
        """Let npu-graph-runtime capture and replay the engine's breakable graphs."""
        manager = self.cudagraph_manager
        if not manager.use_breakable_cg or self.speculative_config is not None:
            _LOGGER.warning("vllm-npu-graph leaves the graphs of this mode to the engine")
            return
        # As the engine makes it at its captures, where it finds none.
        metadata = getattr(self.model_state, "device_metadata", None)
        model = ModelWithContext(self.model, device_metadata=metadata)
        made = BreakableGraphs(model, self.vllm_config, device=self._npu)
        manager.breakable_cg_runner = made

    def _find_reason(self) -> str | None:
        mode, parallel = self.cudagraph_manager.cudagraph_mode, self.parallel_config
        if mode.decode_mode() != CUDAGraphMode.FULL or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        if self.speculative_config is not None:
            return "drafts were not tried with model runner v2"
        if parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size > 1:
            return "attention under DCP or PCP was not tested"
        return None if self._has_tasks() else find_uncovered(self.compilation_config)

    def _has_tasks(self) -> bool:
        backends = {group.backend for groups in self.attn_groups for group in groups}
        return all(use_updatable_graph(backend) for backend in backends)


class _LaneGraphManager(ModelAclGraphManager):  # type: ignore[misc]
    """The engine's manager, whose graphs are adopted at their first step.

    Args:
        manager: The engine's; its state is taken over.
        adopted: Takes the graphs.
    """

    def __init__(self, manager: ModelAclGraphManager, adopted: AdoptedGraphs) -> None:
        self.__dict__.update(manager.__dict__)
        self._adopted = adopted
        self._seen: set[Any] = set()
        self.graphs = ReleasedEntries(self._release)

    def _updatable_graph_replay(self, desc: Any, attn_metadata: Any) -> Any:
        """Replay a graph; at its first step, replace it by one that the lane updates."""
        if desc not in self._seen:
            self._seen.add(desc)
            source = ContextSource(attn_metadata)
            self.graphs[desc] = self._adopted.adopt(self.graphs[desc], desc, source)
        return super()._updatable_graph_replay(desc, attn_metadata)

    def _release(self) -> None:
        self._seen.clear()
        self._adopted.release_all()
