"""The bytes of KV caches, whose buffers may be shared."""

from __future__ import annotations

import torch

from vllm_npu_graph.planning.free_memory import count_cache_bytes


def test_each_storage_counts_once_and_whole() -> None:
    shared, own = torch.empty(1000, dtype=torch.int8), torch.empty(100, dtype=torch.bfloat16)
    caches = [(shared[:400], shared[400:]), {"keys": own[10:]}, [shared.view(10, 100)]]

    assert count_cache_bytes(caches) == 1000 + 200
    assert count_cache_bytes([]) == 0
    assert count_cache_bytes([torch.empty(0), None]) == 0
