"""The memory that KV caches have, and that further tensors of a device can take."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

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


def count_cache_bytes(caches: object) -> int:
    """Return the bytes of all storages in a structure of tensors, each storage once.

    The engine's configuration does not say it: caches may share a buffer, or have one each.

    Args:
        caches: Tensors on any device, in lists, tuples and mappings.
    """
    storages: dict[int, int] = {}
    pending = [caches]
    while pending:
        each = pending.pop()
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, Mapping):
            pending.extend(each.values())
        elif isinstance(each, (list, tuple)):
            pending.extend(each)
    return sum(storages.values())
