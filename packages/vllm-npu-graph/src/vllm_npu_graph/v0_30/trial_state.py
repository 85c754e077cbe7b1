"""State of a model runner of vllm-ascend 0.30 for trial captures, before its KV cache exists."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.config import set_current_vllm_config
from vllm.platforms import current_platform
from vllm.v1.worker.workspace import unlock_workspace
from vllm_ascend.compilation import acl_graph
from vllm_ascend.device_allocator.sleep_mem_optimized import AclGraphSleepWakeupManager

from vllm_npu_graph.planning.free_memory import count_cache_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def trial_state(runner: Any) -> Iterator[int]:
    """Give a runner a minimal KV cache and a memory pool for graphs; release both afterwards.

    The runner must accept `initialize_kv_cache(..., is_profiling=True)`. Graphs of the trial hold
    addresses of the minimal cache, so none of them stays. They need a pool of their own, because
    torch does not let a pool be used again after its last graph is gone.

    Yields:
        Bytes of the minimal KV cache.
    """
    pool = current_platform.graph_pool_handle()
    wrappers = list(acl_graph._acl_graph_wrappers)  # noqa: SLF001 - as the engine's sleep mode does
    pools = [wrapper.graph_pool for wrapper in wrappers]
    for wrapper in wrappers:
        wrapper.graph_pool = pool
    try:
        with set_current_vllm_config(runner.vllm_config):
            runner._init_minimal_kv_cache_for_profiling()  # noqa: SLF001 - vLLM's, for this use
        yield count_cache_bytes(runner.kv_caches)
    finally:
        AclGraphSleepWakeupManager(runner.vllm_config, lambda: runner).sleep()
        for wrapper, own in zip(wrappers, pools, strict=True):
            wrapper.graph_pool = own
        # The engine sets them once, with its KV cache, and refuses to do so again.
        for name in ("_graph_params", "_draft_graph_params", "_draft_graph_prefill_params"):
            setattr(acl_graph, name, None)
        for layer in runner.compilation_config.static_forward_context.values():
            # Attention keeps the first cache that it sees.
            impl: Any = getattr(layer, "impl", None)
            if hasattr(impl, "key_cache"):
                impl.key_cache = impl.value_cache = None
        unlock_workspace()
        runner._cleanup_profiling_kv_cache()  # noqa: SLF001 - vLLM's, for this use
