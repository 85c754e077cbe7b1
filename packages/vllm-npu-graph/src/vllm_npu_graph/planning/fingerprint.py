"""What the memory of an engine's graphs depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_npu_graph.options import Options

_DISTRIBUTIONS = (
    *("vllm", "vllm-ascend", "torch", "torch_npu"),
    *("attn-update", "npu-graph-runtime", "vllm-npu-graph"),
)


def describe_start(
    vllm_config: Any, options: Options, device: Mapping[str, object], rank: int
) -> dict[str, str]:
    """Return the factors of a start, each as text."""
    graphs, scheduler = vllm_config.compilation_config, vllm_config.scheduler_config
    drafts = vllm_config.speculative_config
    drafted = {
        "method": drafts.method,
        "tokens": drafts.num_speculative_tokens,
        "model": drafts.draft_model_config and drafts.draft_model_config.compute_hash(),
    } if drafts is not None else None  # fmt: skip
    factors = {
        **{name: _installed(name) for name in _DISTRIBUTIONS},
        **device,
        "configuration": vllm_config.compute_hash(),
        "mode": graphs.cudagraph_mode.name,
        "sizes": sorted(graphs.cudagraph_capture_sizes or ()),
        "sequences": scheduler.max_num_seqs,
        "tokens": scheduler.max_num_batched_tokens,
        "length": vllm_config.model_config.max_model_len,
        "drafts": drafted,
        "options": options,
        "rank": rank,
        "ranks": vllm_config.parallel_config.world_size_across_dp,
    }
    return {name: str(value) for name, value in factors.items()}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
