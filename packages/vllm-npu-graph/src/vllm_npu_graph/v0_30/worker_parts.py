"""What our worker needs to know about this release: the worker it would choose, and the fusions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm import envs
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

# Methods of drafting whose graphs were planned in a test.
_DRAFTS = ("ngram", "eagle3")

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
    config = worker.vllm_config
    parallel, drafts = config.parallel_config, config.speculative_config
    ranks = parallel.tensor_parallel_size
    reasons = {
        "breakable graphs were not tested": envs.VLLM_USE_BREAKABLE_CUDAGRAPH,
        "there are no graphs": config.compilation_config.cudagraph_mode == CUDAGraphMode.NONE,
        "kv_cache_memory_bytes sets the size of the KV cache": (
            config.cache_config.kv_cache_memory_bytes is not None
        ),
        "model runner v2 was not tested with it": worker.use_v2_model_runner,
        "of several ranks, only those of tensor parallelism were tested": (
            parallel.world_size_across_dp != ranks or parallel.decode_context_parallel_size > 1
        ),
        "drafts by other methods than ngram and eagle3 were not tested": (
            drafts is not None and drafts.method not in _DRAFTS
        ),
        "KV caches other than that of attention on the device were not tested": (
            init_ascend_config(config).sparse_kv_offload_config.enabled
            or config.model_config.is_hybrid
        ),
        "graphs of encoders and of LoRA adapters, and sleep mode, were not tested": (
            config.compilation_config.cudagraph_mm_encoder
            or config.lora_config is not None
            or config.model_config.enable_sleep_mode
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
