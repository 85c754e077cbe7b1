"""vLLM-Ascend's model runner (v1), with attention update by a lane and graphs by our runtime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.platforms import current_platform
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from npu_graph_runtime import CaptureSession, NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.recording.draft_update import DraftUpdate
from vllm_npu_graph.recording.recorded_graphs import RecordedGraphs
from vllm_npu_graph.step_context import StepContext
from vllm_npu_graph.v0_23.recorded_impl import find_recorded, find_uncovered
from vllm_npu_graph.v0_23.runtime_graphs import RuntimeGraphs, unserved_graphs

if TYPE_CHECKING:
    import torch

    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")

# What was tried with attention update, without latent attention and beside it.
_DRAFTS = (("ngram", "eagle3"), ("mtp",))


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None where models or modes are not covered."""

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.model: Any
        self.attention_update: AttentionUpdate | None = None
        self.draft_update: DraftUpdate | None = None
        self._options = options
        # One for all captures: the engine captures again when it wakes up.
        self._npu = NpuDevice(self.device.index or 0)
        self._graph_context: StepContext | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, then replace the engine's parts by ours where they support the model."""
        super().load_model(*args, **kwargs)
        if self._options.attention:
            self._record_attention()
        if self._options.graphs and isinstance(self.model, ACLGraphWrapper):
            self.model = RuntimeGraphs(**_arguments(self.model))
        elif self.attention_update is not None:
            self.model = RecordedGraphs(**_arguments(self.model), update=self.attention_update)
        if self.draft_update is not None:
            # Its steps have other numbers and tensors each time, which RuntimeGraphs would refuse.
            given = _arguments(self.drafter._runnable)  # noqa: SLF001 - the engine's own drafter
            made = RecordedGraphs(**given, update=self.draft_update)
            self.drafter._runnable = made  # noqa: SLF001

    def capture_model(self) -> int:
        """Capture all graphs; return the bytes that they took.

        Raises:
            GraphRuntimeError: With the key ``graphs``: the device refused a capture.
        """
        made = unserved_graphs()
        if self._graph_context is None and not made:
            return super().capture_model()  # type: ignore[no-any-return]
        context = self._graph_context = self._graph_context or StepContext()
        for number, graphs in enumerate(made):
            name = "model" if graphs is self.model else f"piece {number}"
            graphs.serve(self._npu, context, self.attention_update, name)
        _LOGGER.info("vllm-npu-graph captures %d callables by npu-graph-runtime", len(made))
        with CaptureSession(self._npu, context, pool=current_platform.get_global_graph_pool()):
            return super().capture_model()  # type: ignore[no-any-return]

    def _record_attention(self) -> None:
        """Let the attention be recorded if all of it is covered."""
        context = self.compilation_config.static_forward_context
        layers = {name: layer for name, layer in context.items() if hasattr(layer, "impl")}
        drafted = set(getattr(self.drafter, "attn_layer_names", ()))
        reason = self._find_reason(layers, drafted)
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        lane = open_lane(self._npu, self._options)
        self.attention_update = AttentionUpdate(lane, frozenset(layers.keys() - drafted))
        updates = dict.fromkeys(layers.keys() - drafted, self.attention_update)
        if drafted and isinstance(self.drafter._runnable, ACLGraphWrapper):  # noqa: SLF001
            steps = self.speculative_config.num_speculative_tokens
            self.draft_update = DraftUpdate(lane, drafted, steps)
            updates |= dict.fromkeys(drafted, self.draft_update)
        for name, update in updates.items():
            layers[name].impl = find_recorded(layers[name].impl)(layers[name].impl, name, update)
        told = (len(updates), lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates the attention of %d layers by %s (%s)", *told)

    def _find_reason(self, layers: dict[str, Any], drafted: set[str]) -> str | None:
        mode = self.compilation_config.cudagraph_mode
        if not isinstance(self.model, ACLGraphWrapper) or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        drafts, parallel = self.speculative_config, self.parallel_config
        if drafts is not None and (
            drafts.method not in _DRAFTS[self.model_config.use_mla]
            or drafts.parallel_drafting
            or parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size > 1
        ):
            return f"drafts by {drafts.method}, at once or with spread keys, were not tried"
        if drafted and parallel.data_parallel_size > 1:
            return "a rank without a sequence gives its draft's steps other metadata"
        if any(getattr(layers[name].impl, "sliding_window", None) for name in drafted):
            return "the draft's attention has a sliding window, and another table in each step"
        if self.enable_enpu or self.use_sparse or self.use_compress or not layers:
            return "the model's attention is sparse or compressed"
        reasons = {name: find_uncovered(layer.impl) for name, layer in layers.items()}
        return next((f"{name} has {why}" for name, why in reasons.items() if why), None)

    def _update_full_graph_params_if_needed(self, context: Any, *given: Any) -> None:
        update = self.attention_update
        if update is None or not update.is_recorded(context.batch_descriptor):
            super()._update_full_graph_params_if_needed(context, *given)


def _arguments(wrapper: Any) -> dict[str, Any]:
    """Return the arguments for a wrapper like the engine's own."""
    names = ("vllm_config", "runtime_mode", "use_eagle", "enable_enpu")
    given = {name: getattr(wrapper, name) for name in names}
    return {"runnable": wrapper.unwrap(), "cudagraph_options": wrapper.aclgraph_options, **given}
