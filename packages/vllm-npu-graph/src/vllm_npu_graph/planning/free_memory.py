"""The memory of a device that further tensors can take."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

_OUTSIDE_GRAPHS = (0, 0)


def read_free_bytes(device: NpuDevice) -> int:
    """Return the free bytes of a device, and the unused ones of torch's allocator.

    Collects garbage, which may hold graphs and tensors, and waits for the device. Of the
    allocator's memory, only segments outside graphs count: with expandable segments, which are
    vllm-ascend's default, it has pages of 20 MiB, and the next tensor fills a page that the KV
    cache began. If its segments do not report their pool, only the device's free memory counts.
    """
    gc.collect()
    device.synchronize()
    device.empty_cache()
    unused: int = sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in device.memory_snapshot()["segments"]
        if tuple(segment.get("segment_pool_id", ())) == _OUTSIDE_GRAPHS
    )
    return device.memory_figures().free + unused
