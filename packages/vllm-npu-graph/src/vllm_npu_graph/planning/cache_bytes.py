"""The memory of the engine's KV caches."""

from __future__ import annotations

from collections.abc import Mapping

import torch


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
