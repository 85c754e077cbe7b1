"""What our worker needs to know about this release: the worker it would choose, and the fusions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm_ascend.ascend_config import init_ascend_config
from vllm_ascend.device.hardware_profile import (
    HardwareCapability,
    get_current_hardware_profile,
)

from vllm_npu_graph.planning.largest_batch import add_largest_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_WORKER = "vllm_ascend.worker.worker.NPUWorker"

_LOGGER = logging.getLogger("vllm.npu_graph")


def resolve_as_auto(vllm_config: Any) -> str:
    """Return the worker that the engine would choose if none is named.

    The same as in `vllm_ascend.platform._setup_worker_and_scheduler` of 0.30.0rc2, which has no
    function for it. Nothing else in this release depends on whether a worker is named.
    """
    profile = get_current_hardware_profile()
    has_patches = profile.supports(HardwareCapability.STANDARD_WORKER_PATCHES)
    if has_patches and init_ascend_config(vllm_config).xlite_graph_config.enabled:
        return "vllm_ascend.xlite.xlite_worker.XliteWorker"
    return str(profile.default_worker_cls)


def add_fusions(_vllm_config: Any, _settings: Mapping[str, object]) -> None:
    """Log that nothing is fused: our pass was not tested with this release."""
    _LOGGER.warning(
        "vllm-npu-graph fuses nothing: it was not tested with this release of the engine"
    )


def add_sizes(worker: Any) -> None:
    """Make the largest decode batch a capture size; model runner v2 was not tested with it."""
    if not worker.use_v2_model_runner:
        add_largest_batch(worker.vllm_config)


def find_unplanned(worker: Any) -> str | None:
    """Return why the graph memory of a worker is not planned; None if it is."""
    vllm_config = worker.vllm_config
    if worker.use_v2_model_runner:
        return "model runner v2 was not tested with it"
    if vllm_config.compilation_config.cudagraph_mode == CUDAGraphMode.NONE:
        return "there are no graphs"
    if vllm_config.cache_config.kv_cache_memory_bytes is not None:
        return "kv_cache_memory_bytes sets the size of the KV cache"
    offload = init_ascend_config(vllm_config).sparse_kv_offload_config
    if offload.enabled or vllm_config.model_config.is_hybrid:
        return "KV caches other than that of attention on the device were not tested"
    if vllm_config.compilation_config.cudagraph_mm_encoder:
        return "graphs of encoders were not tested"
    return None
