"""vllm-ascend 0.30's model runner v1, with decode graphs that an update lane updates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from vllm import envs
from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat
from vllm.config import CUDAGraphMode
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.utils import use_updatable_graph
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from npu_graph_runtime import NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.planning.free_memory import read_free_bytes
from vllm_npu_graph.planning.graph_hits import GraphHits
from vllm_npu_graph.planning.trial_captures import TrialCaptures
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.recording.recorded_graphs import RecordedGraphs
from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs
from vllm_npu_graph.v0_30.lane_graph_wrapper import LaneGraphWrapper
from vllm_npu_graph.v0_30.recorded_latent_impl import find_layers, find_uncovered, record_layers
from vllm_npu_graph.v0_30.trial_state import trial_state

if TYPE_CHECKING:
    from attn_update import UpdateLane
    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")


# Methods of drafting that were tested.
_DRAFTS = ("ngram", "eagle3")


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None for models and modes that are not covered.

    Attributes:
        graph_hits: Counts the steps; None unless the key asks for it.
    """

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.model: Any
        self.attention_update: AdoptedGraphs | AttentionUpdate | None = None
        self.draft_update: AdoptedGraphs | None = None
        self.graph_hits: GraphHits | None = None
        self._trial: TrialCaptures | None = None
        self._options = options
        if options.graphs:
            _LOGGER.warning("vllm-npu-graph leaves the graphs of this release to the engine")

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, then replace the engine's wrapper if its graphs are covered."""
        super().load_model(*args, **kwargs)
        if not self._options.attention:
            return
        reason = self._find_reason()
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        lane = open_lane(NpuDevice(self.device.index or 0), self._options)
        given = _arguments(self.model)
        if use_updatable_graph(self.attn_backend):
            adopted = self.attention_update = AdoptedGraphs(lane)
            self.model = LaneGraphWrapper(adopted=adopted, **given)
            self._adopt_draft(lane)
        else:
            layers = find_layers(self.compilation_config)
            update = self.attention_update = record_layers(layers, lane)
            self.model = RecordedGraphs(update=update, **given)
        told = (lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates attention by %s (%s)", *told)

    def initialize_kv_cache(self, *args: Any, is_profiling: bool = False, **kwargs: Any) -> None:
        """Initialize the KV cache; `is_profiling` is vLLM's, for a cache that is replaced."""
        super().initialize_kv_cache(*args, **kwargs)
        if self._options.plan and not is_profiling:
            graphs = self.compilation_config
            table = CUDAGraphLogging(graphs.cudagraph_mode, graphs.cudagraph_capture_sizes)
            self.graph_hits = GraphHits(table, interval=envs.VLLM_LOG_STATS_INTERVAL)

    @torch.inference_mode()
    def profile_cudagraph_memory(self) -> int:
        """Return the bytes that graphs, and buffers of attention, will take.

        Captures some graphs and releases them. Called after the profile run and before the KV cache
        exists, as vLLM calls its own.
        """
        device = NpuDevice(self.device.index or 0)
        before = read_free_bytes(device)
        with trial_state(self) as cache_bytes:
            self._trial = trial = TrialCaptures(device)
            try:
                self.capture_model()
            finally:
                self._trial = None
            taken = before - cache_bytes - read_free_bytes(device)
        return max(taken, 0) + trial.further_bytes

    def _capture_cudagraphs(self, batch_descriptors: Any, *args: Any, **kwargs: Any) -> None:
        """Capture the batches, or, in a trial, those that its planner asks for."""
        capture = super()._capture_cudagraphs
        if self._trial is None:
            capture(batch_descriptors, *args, **kwargs)
            return
        self._trial.capture(batch_descriptors, lambda chosen: capture(chosen, *args, **kwargs))

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Return how a step runs, and count it; the engine's dummy runs are not steps."""
        made = super()._determine_batch_execution_and_padding(*args, **kwargs)
        if self.graph_hits is not None and "force_uniform_decode" not in kwargs:
            mode, batch, *_ = made
            tokens, most = kwargs["num_tokens"], kwargs["max_num_scheduled_tokens"]
            padding = batch.num_tokens - tokens
            is_decode = (
                most * kwargs["num_reqs"] == tokens and most == self.uniform_decode_query_len
            )
            self.graph_hits.count(
                CUDAGraphStat(tokens, batch.num_tokens, padding, str(mode)),
                is_missed=is_decode and mode == CUDAGraphMode.NONE,
            )
        return made

    def _find_reason(self) -> str | None:
        mode, parallel = self.compilation_config.cudagraph_mode, self.parallel_config
        if not isinstance(self.model, ACLGraphWrapper) or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        drafts = self.speculative_config
        if drafts is not None and (drafts.method not in _DRAFTS or drafts.parallel_drafting):
            return f"drafts by {drafts.method}, or all at once, were not tested"
        has_parts = parallel.decode_context_parallel_size > 1
        if parallel.prefill_context_parallel_size > 1 or (has_parts and drafts is not None):
            return "attention under PCP, and drafts under DCP, were not tested"
        if self.enable_enpu:
            return "the engine orders updates by itself (ENPU_ENABLE)"
        if use_updatable_graph(self.attn_backend):
            return None
        return find_uncovered(self.compilation_config)

    def _adopt_draft(self, lane: UpdateLane) -> None:
        """Let the lane also update the draft's graph: the engine's way needs the model's waits."""
        if self.speculative_config is None or self.speculative_config.method == "ngram":
            return
        draft = self.drafter._runnable  # noqa: SLF001 - the engine's own drafter
        if isinstance(draft, ACLGraphWrapper):
            self.draft_update = AdoptedGraphs(lane)
            wrapper = LaneGraphWrapper(adopted=self.draft_update, **_arguments(draft))
            self.drafter._runnable = wrapper  # noqa: SLF001

    def _update_full_graph_params_if_needed(self, context: Any, *given: Any) -> None:
        """Leave the update to the wrapper if it recorded the graph."""
        update = self.attention_update
        if isinstance(update, AttentionUpdate) and update.is_recorded(context.batch_descriptor):
            return
        super()._update_full_graph_params_if_needed(context, *given)


def _arguments(wrapper: ACLGraphWrapper) -> dict[str, Any]:
    """Return the arguments for a wrapper like the engine's own."""
    names = ("vllm_config", "runtime_mode", "use_eagle", "update_stream")
    given = {name: getattr(wrapper, name) for name in names}
    return {"runnable": wrapper.unwrap(), "cudagraph_options": wrapper.aclgraph_options, **given}
