"""Entry point: vLLM's ``worker_cls="vllm_npu_graph.worker.NpuGraphWorker"``."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch
from vllm import envs
from vllm.distributed.parallel_state import get_world_group
from vllm.v1.utils import report_usage_stats
from vllm.v1.worker.workspace import init_workspace_manager
from vllm_ascend.worker.worker import NPUWorker

from attn_update import AttnUpdateError
from npu_graph_runtime import GraphRuntimeError, NpuDevice
from vllm_npu_graph.options import EngineVersionError, Options, release_folder
from vllm_npu_graph.planning.fingerprint import describe_start
from vllm_npu_graph.planning.free_memory import count_cache_bytes
from vllm_npu_graph.planning.graph_budget import GraphBudget
from vllm_npu_graph.planning.kept_plan import KeptPlan

if TYPE_CHECKING:
    from vllm_npu_graph.v0_23.fusions import FusionPass

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphWorker(NPUWorker):  # type: ignore[misc]
    """The engine's worker; with the key ``npu_graph`` its model runner is ours.

    Attributes:
        fusions: The pass that fuses, where the key asks for it.
        graph_budget: The memory of the graphs, where the key asks for a plan.
    """

    fusions: FusionPass | None = None
    graph_budget: GraphBudget | None = None

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
        parts = import_module(f"{folder}.worker_parts")
        if options.fusions is not None:
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
        if options.plan:
            parts.add_sizes(self)
            self._open_budget(options, parts.find_unplanned(self))
        self.model_runner = runner(self.vllm_config, self.device, options)
        if self.rank == 0:
            report_usage_stats(self.vllm_config)

    def _open_budget(self, options: Options, reason: str | None) -> None:
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph plans no graph memory: %s", reason)
            return
        device = NpuDevice(self.device.index or 0)
        npu = torch.get_device_module("npu")
        described = {
            "device": npu.get_device_name(self.device),
            "memory": device.memory_figures().total,
            "CANN": npu.utils.get_cann_version(),
        }
        factors = describe_start(self.vllm_config, options, described, self.rank)
        kept = KeptPlan(f"{envs.VLLM_CACHE_ROOT}/npu_graph_plans", factors)
        self.graph_budget = GraphBudget(device, kept, _agree)

    def determine_available_memory(self) -> int:
        """Return the bytes for the KV cache, without those that graphs will take."""
        available: int = super().determine_available_memory()
        budget, limit = self.graph_budget, self.cache_config.kv_cache_memory_bytes
        if budget is None or limit is not None:  # which the engine's own plan may have set
            return available
        planned = budget.plan(self.model_runner.profile_cudagraph_memory)
        self.available_kv_cache_memory_bytes -= planned
        return available - planned

    def shutdown(self) -> None:
        """Log how the last steps used the graphs; then end as the engine does."""
        hits = getattr(getattr(self, "model_runner", None), "graph_hits", None)
        if hits is not None:
            hits.log()
        super().shutdown()

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
        if self.graph_budget is not None:
            self.graph_budget.conclude(count_cache_bytes(self.model_runner.kv_caches))
        return times


def _agree(is_true: bool) -> bool:
    """Return whether all ranks pass true."""
    group = get_world_group()
    if group.world_size == 1:
        return is_true
    flag = torch.tensor(int(is_true))
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN, group.cpu_group)
    return bool(flag)
