"""An attention for SGLang's decode graphs that reads its lengths on the device: nothing to update.

In the engine such kernels are written in Triton-Ascend (attention with sinks), for an NPU only;
this one is made of torch's own operators, with the same memory and the same metadata.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

TARGET = (
    "sglang.srt.hardware_backend.npu.attention.ascend_backend.AscendAttnBackend"
    ".forward_decode_graph"
)


def attend(
    backend: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer: Any,
    batch: Any,
    *_args: object,
    **_named: object,
) -> torch.Tensor:
    """Replace the engine's `forward_decode_graph` of plain attention.

    Args:
        backend: The engine's attention backend, whose metadata has lengths on the device.
        q: Queries, [sequences, heads * head size].
        k: New keys, [sequences, key heads * head size].
        v: New values, as keys.
        layer: The engine's layer.
        batch: The engine's batch.

    Returns:
        [sequences, heads * head size].
    """
    pool = backend.token_to_kv_pool
    places = importlib.import_module(type(backend).__module__).KVWriteLoc(
        batch.out_cache_loc, backend.forward_metadata.swa_out_cache_loc
    )
    pool.set_kv_buffer(layer, places, k, v)
    lengths, tables = backend.forward_metadata.seq_lens, backend.forward_metadata.block_tables
    heads, size = layer.tp_k_head_num, layer.qk_head_dim

    def rows(buffer: torch.Tensor) -> torch.Tensor:
        pages = buffer.view(-1, backend.page_size, heads, size)
        found = pages.index_select(0, tables.reshape(-1))
        return found.view(len(tables), -1, heads, size).transpose(1, 2).float()

    keys, values = (
        rows(get(layer.layer_id)) for get in (pool.get_key_buffer, pool.get_value_buffer)
    )
    queries = q.view(len(tables), heads, -1, size).float()
    scores = torch.matmul(queries, keys.transpose(2, 3)) * layer.scaling
    beyond = torch.arange(keys.shape[2], device=q.device) >= lengths.view(-1, 1, 1, 1)
    weights = torch.softmax(scores.masked_fill(beyond, -1e30), dim=-1)
    return torch.matmul(weights, values).to(q.dtype).view(len(tables), -1)
