"""Makes the largest decode batch a capture size."""

from __future__ import annotations

import logging
from typing import Any

_LOGGER = logging.getLogger("vllm.npu_graph")
# Of vLLM's default sizes: the largest, and the distance of the sizes below and from 256.
_MOST, _STRIDES, _WIDER_FROM = 512, (8, 16), 256


def add_largest_batch(vllm_config: Any) -> int | None:
    """Add the largest decode batch to the capture sizes if it is less than one stride beyond them.

    Otherwise batches of that size run eagerly although all smaller ones are captured. Larger gaps
    are left as they are, because the user has limited the sizes; they are logged.

    Returns:
        The added size, in tokens; None if nothing was added.
    """
    graphs, scheduler = vllm_config.compilation_config, vllm_config.scheduler_config
    sizes = sorted(graphs.cudagraph_capture_sizes or ())
    if not sizes:
        return None
    drafts = vllm_config.speculative_config
    tokens = 1 + (drafts.num_speculative_tokens or 0 if drafts is not None else 0)
    largest: int = min(scheduler.max_num_seqs * tokens, scheduler.max_num_batched_tokens)
    if largest <= sizes[-1]:
        return None
    stride = _STRIDES[sizes[-1] >= _WIDER_FROM]
    ranks = vllm_config.parallel_config.tensor_parallel_size
    is_divided = graphs.pass_config.enable_sp and largest % ranks
    if largest > _MOST or largest - sizes[-1] > stride or is_divided:
        _LOGGER.warning(
            "vllm-npu-graph: decode batches of %d to %d tokens have no graph; the largest capture "
            "size is %d, set by max_cudagraph_capture_size or cudagraph_capture_sizes",
            sizes[-1] + 1,
            largest,
            sizes[-1],
        )
        return None
    graphs.cudagraph_capture_sizes = [*sizes, largest]
    graphs.max_cudagraph_capture_size = largest
    _LOGGER.info("vllm-npu-graph adds the largest decode batch, %d, to the capture sizes", largest)
    return largest
