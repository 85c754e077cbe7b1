"""vLLM-Ascend's model runner v2, with attention update by a lane."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import torch
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager, ModelCudaGraphManager
from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager
from vllm_ascend.worker.v2.model_runner import NPUModelRunner

from npu_graph_runtime import NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.v0_23.recorded_impl import find_recorded, find_uncovered

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None where models or modes are not covered."""

    attention_update: AttentionUpdate | None = None

    def __init__(self, vllm_config: Any, device: Any, options: Any) -> None:
        super().__init__(vllm_config, device)
        self._options = options
        if options.graphs:
            _LOGGER.warning("vllm-npu-graph leaves the graphs of model runner v2 to the engine")

    def initialize_kv_cache(self, kv_cache_config: Any) -> None:
        """Create the graph capturer; replace it by ours if all attention is supported."""
        super().initialize_kv_cache(kv_cache_config)
        context = self.compilation_config.static_forward_context
        layers = {name: layer for name, layer in context.items() if hasattr(layer, "impl")}
        reason = self._find_reason(layers) if self._options.attention else "it was told to"
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        lane = open_lane(NpuDevice(self.device.index or 0), self._options)
        update = self.attention_update = AttentionUpdate(lane, layers)
        for name, layer in layers.items():
            layer.impl = find_recorded(layer.impl)(layer.impl, name, update)
        self.cudagraph_manager: Any = _RecordedGraphManager(self.cudagraph_manager, update)
        self.num_computed_tokens_cpu = torch.from_numpy(self.req_states.num_computed_tokens_np)
        told = (len(layers), lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates the attention of %d layers by %s (%s)", *told)

    def _copy_num_computed_tokens_to_cpu(self) -> None:
        """Leave it to the scheduler's count, equal without drafts: the engine waits for its own."""
        if self.attention_update is None:
            super()._copy_num_computed_tokens_to_cpu()

    def _find_reason(self, layers: dict[str, Any]) -> str | None:
        mode = self.cudagraph_manager.cudagraph_mode
        if mode.decode_mode() != CUDAGraphMode.FULL or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        if self.speculative_config is not None or self.lora_config is not None or not layers:
            return "drafts and adapters were not tried with model runner v2"
        reasons = {name: find_uncovered(layer.impl) for name, layer in layers.items()}
        return next((f"{name} has {why}" for name, why in reasons.items() if why), None)


class _RecordedCaptures(CudaGraphManager):  # type: ignore[misc]
    def capture(self, create_forward_fn: Any, *args: Any) -> None:
        with ExitStack() as recording:

            def create_forward(desc: Any, warmup: bool) -> Any:
                recording.close()  # of the graph before
                forward = create_forward_fn(desc, warmup)
                if desc.cg_mode == CUDAGraphMode.FULL and not warmup:
                    recording.enter_context(self._update.recording(desc))
                return forward

            super().capture(create_forward, *args)


class _RecordedGraphManager(ModelAclGraphManager, _RecordedCaptures):  # type: ignore[misc]
    """Stands for the engine's, whose captures come by the other base; its replays are steps."""

    def __init__(self, manager: ModelAclGraphManager, update: AttentionUpdate) -> None:
        self.__dict__.update(manager.__dict__)
        self._update = update
        self.graphs = ReleasedEntries(update.release_all)

    def run_fullgraph(self, desc: Any) -> Any:
        if not self._update.is_recorded(desc):
            return super().run_fullgraph(desc)
        with self._update.step(desc, self.model_runner.model_state.attn_metadata):
            return ModelCudaGraphManager.run_fullgraph(self, desc)  # without the engine's update
