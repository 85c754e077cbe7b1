"""vLLM-Ascend's model runner (v1), with attention update by a lane and graphs by our runtime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context
from vllm.platforms import current_platform
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from npu_graph_runtime import CaptureSession, NpuDevice
from vllm_npu_graph.attention_update import AttentionUpdate
from vllm_npu_graph.recorded_graphs import RecordedGraphs
from vllm_npu_graph.recorded_impl import RecordedAttentionImpl
from vllm_npu_graph.recorded_latent_impl import RecordedLatentImpl
from vllm_npu_graph.runtime_graphs import RuntimeGraphs, StepContext, unserved_graphs

if TYPE_CHECKING:
    import torch

    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None where models or modes are not covered."""

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.model: Any
        self.attention_update: AttentionUpdate | None = None
        self._options = options
        self._graph_context: StepContext | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, then let our parts stand for the engine's as far as they cover it."""
        super().load_model(*args, **kwargs)
        if self._options.attention:
            self._record_attention()
        update = self.attention_update
        if self._options.graphs and isinstance(self.model, ACLGraphWrapper):
            self.model = RuntimeGraphs(**_arguments(self.model))
        elif update is not None:
            self.model = RecordedGraphs(**_arguments(self.model), update=update)

    def capture_model(self) -> int:
        """Capture all graphs; return the bytes that they took.

        Raises:
            GraphRuntimeError: With the key ``graphs``: the device refused a capture.
        """
        made = unserved_graphs()
        if self._graph_context is None and not made:
            return super().capture_model()  # type: ignore[no-any-return]
        device = NpuDevice(self.device.index or 0)
        context = self._graph_context = self._graph_context or StepContext()
        for number, graphs in enumerate(made):
            name = "model" if graphs is self.model else f"piece {number}"
            graphs.serve(device, context, self.attention_update, name)
        _LOGGER.info("vllm-npu-graph captures %d callables by npu-graph-runtime", len(made))
        pool = current_platform.get_global_graph_pool()
        with CaptureSession(device, context, pool=pool):
            return super().capture_model()  # type: ignore[no-any-return]

    def _record_attention(self) -> None:
        """Let the attention be recorded if all of it is covered."""
        context = self.compilation_config.static_forward_context
        layers = {name: layer for name, layer in context.items() if hasattr(layer, "impl")}
        reason = self._find_reason(layers)
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        device, names = NpuDevice(self.device.index or 0), frozenset(layers)
        update = AttentionUpdate(device, names, self._options.updater)
        for name, layer in layers.items():
            layer.impl = _recorded(layer.impl)(layer.impl, name, update)
        self.attention_update, lane = update, update.lane
        told = (len(layers), lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates the attention of %d layers by %s (%s)", *told)

    def _find_reason(self, layers: dict[str, Any]) -> str | None:
        mode = self.compilation_config.cudagraph_mode
        if not isinstance(self.model, ACLGraphWrapper) or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        if self.speculative_config is not None:
            return "speculative decoding replays its draft model apart"
        if self.enable_enpu or self.use_sparse or self.use_compress or not layers:
            return "the model's attention is sparse or compressed"
        reasons = {name: _find_uncovered(layer.impl) for name, layer in layers.items()}
        return next((f"{name} has {why}" for name, why in reasons.items() if why), None)

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        update, context = self.attention_update, get_forward_context()
        key = context.batch_descriptor
        is_full = context.cudagraph_runtime_mode == CUDAGraphMode.FULL
        if update is None or not is_full or not update.is_recorded(key):
            return super()._model_forward(*args, **kwargs)
        update.begin(key, context.attn_metadata)
        try:
            return super()._model_forward(*args, **kwargs)
        finally:
            update.abandon()

    def _update_full_graph_params_if_needed(self, *args: Any, **kwargs: Any) -> None:
        update = self.attention_update
        if update is None or not update.finish():
            super()._update_full_graph_params_if_needed(*args, **kwargs)


def _recorded(impl: object) -> Any:
    """Return the class that stands for an implementation of the engine; None if there is none."""
    made: tuple[Any, ...] = (RecordedAttentionImpl, RecordedLatentImpl)
    return next((each for each in made if type(impl) is each.__base__), None)


def _find_uncovered(impl: object) -> str | None:
    recorded = _recorded(impl)
    return type(impl).__name__ if recorded is None else recorded.find_uncovered(impl)


def _arguments(wrapper: Any) -> dict[str, Any]:
    """Return what a wrapper like the engine's own is made with."""
    return {
        "runnable": wrapper.unwrap(),
        "vllm_config": wrapper.vllm_config,
        "runtime_mode": wrapper.runtime_mode,
        "cudagraph_options": wrapper.aclgraph_options,
        "use_eagle": wrapper.use_eagle,
        "enable_enpu": wrapper.enable_enpu,
    }
