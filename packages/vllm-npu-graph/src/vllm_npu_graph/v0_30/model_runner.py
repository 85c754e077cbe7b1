"""vllm-ascend 0.30's model runner v1, with decode graphs that an update lane updates."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from vllm import envs
from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat
from vllm.config import CUDAGraphMode
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.compilation.breakable_aclgraph import BreakableACLGraphWrapper
from vllm_ascend.utils import use_updatable_graph
from vllm_ascend.worker.encoder_acl_graph import EncoderAclGraphManager
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from npu_graph_runtime import NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.planning.free_memory import read_free_bytes
from vllm_npu_graph.planning.graph_hits import GraphHits
from vllm_npu_graph.planning.trial_captures import TrialCaptures
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.recording.draft_update import DraftUpdate
from vllm_npu_graph.recording.recorded_graphs import RecordedGraphs
from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs
from vllm_npu_graph.v0_30.breakable_graphs import BreakableGraphs, capturing
from vllm_npu_graph.v0_30.encoder_graphs import LaneEncoderGraphs
from vllm_npu_graph.v0_30.lane_graph_wrapper import LaneGraphWrapper
from vllm_npu_graph.v0_30.recorded_latent_impl import find_layers, find_uncovered, record_layers
from vllm_npu_graph.v0_30.trial_state import trial_state

if TYPE_CHECKING:
    from attn_update import UpdateLane
    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")


# Methods of drafting that were tested, without latent attention and with it.
_DRAFTS = (("ngram", "eagle3"), ("mtp",))


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None for models and modes that are not covered.

    Attributes:
        graph_hits: Counts the steps; None unless the key asks for it.
    """

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.model: Any
        self.attention_update: AdoptedGraphs | AttentionUpdate | None = None
        self.draft_update: AdoptedGraphs | DraftUpdate | None = None
        self.graph_hits: GraphHits | None = None
        self._trial: TrialCaptures | None = None
        self._options = options
        # One for all captures: the engine captures again when it wakes up.
        self._npu = NpuDevice(self.device.index or 0)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, then replace the engine's wrapper if its graphs are covered."""
        super().load_model(*args, **kwargs)
        is_breakable = isinstance(self.model, BreakableACLGraphWrapper)
        if self._options.graphs and not is_breakable:
            _LOGGER.warning("vllm-npu-graph leaves the graphs of this mode to the engine")
        whole = self._make_whole() if self._options.attention else None
        if is_breakable:
            self._pass_draft()
            self.model = self._make_breakable(whole)
        elif whole is not None:
            self.model = whole

    def capture_model(self) -> int:
        """Capture all graphs; return the bytes that they took.

        Raises:
            GraphRuntimeError: With the key ``graphs``: the device refused a capture, or a graph
                would use memory that does not stay.
        """
        if not isinstance(self.model, BreakableGraphs) or not self._options.graphs:
            return super().capture_model()  # type: ignore[no-any-return]
        with capturing(self.model, self._npu):
            return super().capture_model()  # type: ignore[no-any-return]

    def _make_whole(self) -> ACLGraphWrapper | None:
        """Return our wrapper of FULL graphs, or None where the engine updates their attention."""
        reason = self._find_reason()
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return None
        lane = self._lane
        told = (lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates attention by %s (%s)", *told)
        if use_updatable_graph(self.attn_backend):
            adopted = self.attention_update = AdoptedGraphs(lane)
            self._adopt_draft(lane)
            return LaneGraphWrapper(adopted=adopted, **self._arguments_of_whole())
        return self._record_layers(lane)

    @cached_property
    def _lane(self) -> UpdateLane:
        """The lane of the device, for all models of this runner."""
        return open_lane(self._npu, self._options)

    def _create_encoder_cudagraph_manager(self) -> Any:
        """Return what captures the graphs of a vision encoder, or None if nothing does."""
        made = super()._create_encoder_cudagraph_manager()
        if self._options.attention and isinstance(made, EncoderAclGraphManager):
            return LaneEncoderGraphs(made, self._lane)
        return made

    def _make_breakable(self, whole: ACLGraphWrapper | None) -> BreakableGraphs:
        """Return our wrapper of breakable graphs."""
        has_full = self.compilation_config.cudagraph_mode.has_full_cudagraphs()
        if whole is None and has_full and use_updatable_graph(self.attn_backend):
            # The engine's breakable wrapper captures this attention without an update.
            whole = ACLGraphWrapper(**self._arguments_of_whole())
        return BreakableGraphs(
            self.model.unwrap(),
            self.vllm_config,
            device=self._npu if self._options.graphs else None,
            whole=whole,
            use_eagle=self.use_eagle,
            enable_enpu=self.enable_enpu,
        )

    def _pass_draft(self) -> None:
        """Let the FULL graph of a draft capture the draft's model.

        The engine's wrapper of that model would capture inside of this capture, and end.
        """
        wrapper = getattr(self.drafter, "model", None)
        if isinstance(wrapper, BreakableACLGraphWrapper):
            model = wrapper.unwrap()
            given = {"use_eagle": self.use_eagle, "enable_enpu": self.enable_enpu}
            self.drafter.model = BreakableGraphs(model, self.vllm_config, whole=model, **given)

    def _arguments_of_whole(self) -> dict[str, Any]:
        """Return the arguments of the engine's own wrapper of the model's FULL graphs."""
        return {
            "runnable": self.model.unwrap(),
            "vllm_config": self.vllm_config,
            "runtime_mode": CUDAGraphMode.FULL,
            "use_eagle": self.use_eagle,
            "enable_enpu": self.enable_enpu,
            "update_stream": self.update_stream,
        }

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
        device = self._npu
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
        has_full = mode.decode_mode() == CUDAGraphMode.FULL != mode.mixed_mode()
        if not isinstance(self.model, (ACLGraphWrapper, BreakableACLGraphWrapper)) or not has_full:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        drafts = self.speculative_config
        if drafts is not None and (
            drafts.method not in _DRAFTS[self.model_config.use_mla] or drafts.parallel_drafting
        ):
            return f"drafts by {drafts.method}, or all at once, were not tested"
        if parallel.decode_context_parallel_size > 1 and self.use_eagle:
            return "drafts by a model under DCP were not tested"
        if self.enable_enpu:
            return "the engine orders updates by itself (ENPU_ENABLE)"
        is_recorded = not use_updatable_graph(self.attn_backend)
        if is_recorded and drafts is not None and parallel.data_parallel_size > 1:
            return "a rank without a sequence gives its draft's steps other metadata"
        return find_uncovered(self.compilation_config) if is_recorded else None

    def _record_layers(self, lane: UpdateLane) -> RecordedGraphs:
        """Let the lane update launches that the model's layers, and the draft's, record.

        Returns:
            The wrapper of the model's FULL graphs.
        """
        layers = find_layers(self.compilation_config)
        drafts = self.speculative_config
        names = () if drafts is None else self.drafter.attn_layer_names
        drafted = {name: layers.pop(name) for name in names}
        update = self.attention_update = AttentionUpdate(lane, layers)
        record_layers(layers, update)
        draft = self.drafter._runnable if drafted else None  # noqa: SLF001 - the engine's drafter
        if isinstance(draft, ACLGraphWrapper):
            made = self.draft_update = DraftUpdate(lane, drafted, drafts.num_speculative_tokens)
            record_layers(drafted, made)
            self.drafter._runnable = RecordedGraphs(update=made, **_arguments(draft))  # noqa: SLF001
        return RecordedGraphs(update=update, **self._arguments_of_whole())

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
