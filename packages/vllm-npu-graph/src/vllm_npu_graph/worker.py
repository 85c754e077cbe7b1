"""Entry point: vLLM's ``worker_cls="vllm_npu_graph.worker.NpuGraphWorker"``."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from vllm.v1.utils import report_usage_stats
from vllm.v1.worker.workspace import init_workspace_manager
from vllm_ascend.worker.worker import NPUWorker

from attn_update import AttnUpdateError
from npu_graph_runtime import GraphRuntimeError
from vllm_npu_graph.options import EngineVersionError, Options, release_folder

if TYPE_CHECKING:
    from vllm_npu_graph.v0_23.fusions import FusionPass

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphWorker(NPUWorker):  # type: ignore[misc]
    """The engine's worker; with the key ``npu_graph`` its model runner is ours.

    Attributes:
        fusions: The pass that fuses, where the key asks for it.
    """

    fusions: FusionPass | None = None

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a worker, or the engine's own where the engine would choose one of another kind.

        Raises:
            EngineVersionError: The engine was not tried, with or without the key: it may resolve
                more than this package knows of where its worker is not named.
        """
        options = Options.read(vllm_config.additional_config)
        (options or Options()).check_engine()
        parts = import_module(f"vllm_npu_graph.{release_folder()}.worker_parts")
        name = parts.resolve_as_auto(vllm_config)
        if name == parts.OWN_WORKER:
            return super().__new__(cls)
        if options is not None:
            _LOGGER.warning("vllm-npu-graph leaves all to the engine's %s", name)
        own = resolve_name(name)
        extensions = cls.__bases__[1:]  # of the engine's `worker_extension_cls`
        if extensions:
            own = type(own.__name__, (own, *extensions), {})
        return own(vllm_config, *args, **kwargs)

    def init_device(self) -> None:
        """Open the device and make the model runner.

        Raises:
            EngineVersionError: This package has no model runner v2 for the engine.
        """
        options = Options.read(self.vllm_config.additional_config)
        if options is None:
            super().init_device()
            return
        folder = f"vllm_npu_graph.{release_folder()}"
        if options.fusions is not None:
            parts = import_module(f"{folder}.worker_parts")
            self.fusions = parts.add_fusions(self.vllm_config, options.fusions)
        name = "model_runner_v2" if self.use_v2_model_runner else "model_runner"
        if find_spec(f"{folder}.{name}") is None:
            raise EngineVersionError(
                "loading vllm-npu-graph: model runner v2 of this version of vllm-ascend was not "
                "tried; unset VLLM_USE_V2_MODEL_RUNNER, or install vllm-ascend 0.30.0rc2"
            )
        runner = import_module(f"{folder}.{name}").NpuGraphModelRunner
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
        """Compile and capture; then log fusions, and reject a model that lacks a required one."""
        times = super().compile_or_warm_up_model()
        if self.fusions is not None:
            self.fusions.conclude()
        return times
