"""The door: vLLM's ``worker_cls="vllm_npu_graph.worker.NpuGraphWorker"``."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vllm.v1.utils import report_usage_stats
from vllm.v1.worker.workspace import init_workspace_manager
from vllm_ascend.worker.worker import NPUWorker

from attn_update import AttnUpdateError
from npu_graph_runtime import GraphRuntimeError
from vllm_npu_graph.options import Options

if TYPE_CHECKING:
    from vllm_npu_graph.fusions import FusionPass

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphWorker(NPUWorker):  # type: ignore[misc]
    """The engine's worker; with the key ``npu_graph`` its model runner is ours.

    Attributes:
        fusions: The pass that fuses, where the key asks for it.
    """

    fusions: FusionPass | None = None

    def init_device(self) -> None:
        """Open the device and make the model runner; refuse an engine that was not tried."""
        options = Options.read(self.vllm_config.additional_config)
        if options is None:
            super().init_device()
            return
        options.check_engine()  # in front of imports of what another version may lack
        if options.fusions is not None:
            fusions = import_module("vllm_npu_graph.fusions")
            self.fusions = fusions.add_fusions(self.vllm_config, options.fusions)
        name = "model_runner_v2" if self.use_v2_model_runner else "model_runner"
        runner = import_module(f"vllm_npu_graph.{name}").NpuGraphModelRunner
        # As in the engine, which names the class of its runner here and nowhere else.
        self.device = self._init_device()
        init_workspace_manager(self.device, 1)
        self.model_runner = runner(self.vllm_config, self.device, options)
        if self.rank == 0:
            report_usage_stats(self.vllm_config)

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step; a rank whose error the engine would drop ends: others wait for it."""
        try:
            return super().execute_model(*args, **kwargs)
        except (AttnUpdateError, GraphRuntimeError) as error:
            config = self.parallel_config
            ranks = config.tensor_parallel_size * config.prefill_context_parallel_size
            if self.rank == config.world_size - ranks:  # it answers for all
                raise
            _LOGGER.exception("vllm-npu-graph ends rank %d, whose step was refused", self.rank)
            raise SystemExit(1) from error

    def compile_or_warm_up_model(self) -> Any:
        """Compile and capture; then tell what was fused, and refuse a model that lacks a fusion."""
        times = super().compile_or_warm_up_model()
        if self.fusions is not None:
            self.fusions.conclude()
        return times
