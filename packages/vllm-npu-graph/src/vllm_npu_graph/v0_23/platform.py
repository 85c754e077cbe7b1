"""vLLM-Ascend's platform, whose worker, compiler and graphs of pieces are ours with the key."""

from __future__ import annotations

import logging
from typing import Any

from vllm_ascend.platform import NPUPlatform

from vllm_npu_graph.options import Options
from vllm_npu_graph.v0_23.worker_parts import OWN_WORKER

_LOGGER = logging.getLogger("vllm.npu_graph")

WORKER = "vllm_npu_graph.worker.NpuGraphWorker"


class NpuGraphPlatform(NPUPlatform):  # type: ignore[misc]
    """The engine's platform: without the key, each of its answers is the engine's."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Let the engine resolve its configuration, then choose our worker if the key is set.

        The engine resolves more than the worker's class where that is "auto", so our class counts
        as "auto" here.
        """
        parallel = vllm_config.parallel_config
        named = parallel.worker_cls
        if named == WORKER:
            parallel.worker_cls = "auto"
        super().check_and_update_config(vllm_config)
        if parallel.worker_cls == "auto":
            parallel.worker_cls = named  # the engine left this configuration as it is
        elif Options.read(vllm_config.additional_config) is not None:
            if parallel.worker_cls == OWN_WORKER:
                parallel.worker_cls = WORKER
            elif parallel.worker_cls != WORKER:
                _LOGGER.warning("vllm-npu-graph leaves all to the engine's %s", parallel.worker_cls)

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        """Return the name of a piece's wrapper; without the key it creates the engine's wrapper."""
        return "vllm_npu_graph.v0_23.runtime_graphs.make_piece_graphs"

    @classmethod
    def get_compile_backend(cls) -> str:
        """Return the name of the graph compiler."""
        # The engine's configurations ask the platform, while this module is imported.
        from vllm.config import get_current_vllm_config_or_none  # noqa: PLC0415

        config = get_current_vllm_config_or_none()
        options = None if config is None else Options.read(config.additional_config)
        if options is None or options.fusions is None:
            return str(super().get_compile_backend())
        return "vllm_npu_graph.v0_23.fusions.FusingCompiler"
