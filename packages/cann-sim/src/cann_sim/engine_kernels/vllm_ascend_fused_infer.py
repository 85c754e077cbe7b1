"""FusedInferAttentionScore of vllm-ascend whose lengths are on the device, and its metadata.

As proposed in vllm-ascend's pull requests 15215 and 15336: queries ``TND`` in bfloat16 or float16,
keys and values in pages. The values are those of ``torch_npu.npu_fused_infer_attention_score_v2``.
Make the metadata in front of each replay, not in a graph.
"""

from __future__ import annotations

import ctypes
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import torch

from cann_sim.engine_kernels.kernel_call import (
    address,
    launch,
    register_operators,
    require_dense,
    require_value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_ATTENTION = "npu_fused_infer_attention_score_v2_sink"
_METADATA = f"_{_ATTENTION}_metadata"
_WORDS = 1024
_CORES = range(1, 37)
_ALL_TOKENS = 2147483647
_SIZES = 4
_LAYOUTS = ("TND", "TND_NTD")
_LAYOUTS_OF_PAGES = ("PA", "BnBsH", "BnNBsD")
_SPARSE_MODES = (0, 3, 4)
# Head dimensions to that of the rotary parts.
_DIMENSIONS = MappingProxyType({64: 0, 128: 0, 192: 0, 512: 64})
_TYPES = MappingProxyType(
    {
        torch.float32: 0,
        torch.float16: 1,
        torch.int8: 2,
        torch.int32: 3,
        torch.uint8: 4,
        torch.bool: 12,
        torch.bfloat16: 27,
    }
)
_METADATA_SCHEMA = (
    "(int num_heads_q, int num_heads_kv, int head_dim_qk, int head_dim_v, *, "
    "Tensor? actual_seq_lengths=None, Tensor? actual_seq_lengths_kv=None, int batch_size=0, "
    f"int sparse_mode=0, int pre_tokens={_ALL_TOKENS}, int next_tokens={_ALL_TOKENS}, "
    "str input_layout='TND', str input_layout_kv='TND', int sink_num=0, int k_sink_num=0, "
    "int rope_head_dim=0, int block_size=0, int aic_core_num=24, int aiv_core_num=48) -> Tensor"
)
_ATTENTION_SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, *, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? atten_mask=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, "
    "Tensor? block_table=None, Tensor? meta_data=None, int num_query_heads=1, "
    "int num_key_value_heads=0, float softmax_scale=1.0, "
    f"int pre_tokens={_ALL_TOKENS}, int next_tokens={_ALL_TOKENS}, str input_layout='TND', "
    "int sparse_mode=0, int block_size=0, bool return_softmax_lse=False) -> (Tensor, Tensor)"
)


def register() -> None:
    """Give the simulated device both operators in ``torch.ops._C_ascend``.

    Lasts as long as the process. Does nothing where the simulator is not loaded, or where the
    engine's own library has registered them.
    """
    register_operators(
        "_C_ascend",
        {
            _METADATA: (_METADATA_SCHEMA, _make_metadata, _fake_metadata),
            _ATTENTION: (_ATTENTION_SCHEMA, _attend, _fake_attention),
        },
    )


class _Lengths(ctypes.Structure):
    """``SinkLengths`` of ``native/engine_kernels/fused_infer_attention_sink.cpp``."""

    _fields_: ClassVar = (
        *((name, ctypes.c_void_p) for name in ("query_ends", "keys")),
        *((name, ctypes.c_int64) for name in ("sequences", "heads", "kv_heads", "head_dim")),
        *((name, ctypes.c_int64) for name in ("rope_dim", "sparse_mode", "pre_tokens")),
        *((name, ctypes.c_int64) for name in ("next_tokens", "layout", "block_size")),
    )


class _Tensor(ctypes.Structure):
    """``SinkTensor`` of the same file."""

    _fields_: ClassVar = (
        ("memory", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("type", "item", "rank")),
        ("sizes", ctypes.c_int64 * _SIZES),
    )


class _Call(ctypes.Structure):
    """``SinkCall`` of the same file."""

    _fields_: ClassVar = (
        ("lengths", _Lengths),
        *((name, _Tensor) for name in ("query", "key", "value", "query_rope", "key_rope")),
        *((name, _Tensor) for name in ("mask", "block_table", "output", "log_sum_exp")),
        ("metadata", ctypes.c_void_p),
        ("scale", ctypes.c_double),
        ("wants_log_sum_exp", ctypes.c_int64),
    )


def _make_metadata(
    num_heads_q: int,
    num_heads_kv: int,
    head_dim_qk: int,
    head_dim_v: int,
    *,
    actual_seq_lengths: Tensor | None = None,
    actual_seq_lengths_kv: Tensor | None = None,
    batch_size: int = 0,
    sparse_mode: int = 0,
    pre_tokens: int = _ALL_TOKENS,
    next_tokens: int = _ALL_TOKENS,
    input_layout: str = "TND",
    input_layout_kv: str = "TND",
    sink_num: int = 0,
    k_sink_num: int = 0,
    rope_head_dim: int = 0,
    block_size: int = 0,
    aic_core_num: int = 24,
    aiv_core_num: int = 48,
) -> Tensor:
    """Launch what divides the work of a step among cores; returns int32 [1024]."""
    del aiv_core_num  # the simulator gives the vector cores no words
    if torch.get_device_module("npu").is_current_stream_capturing():
        raise RuntimeError(
            f"launching _C_ascend::{_METADATA}: expected a stream that is not captured, because "
            f"replays on a device are reported not to run this operator, which is of the AI CPU, "
            f"found a capture; launch it in front of each replay, and copy its result into the "
            f"memory that the graph reads"
        )
    _require(_METADATA, "head_dim_v", head_dim_v, (head_dim_qk,))
    _require(_METADATA, "input_layout_kv", input_layout_kv, _LAYOUTS_OF_PAGES)
    _require(_METADATA, "sink_num", sink_num, (0,))
    _require(_METADATA, "k_sink_num", k_sink_num, (0,))
    if aic_core_num not in _CORES:
        raise ValueError(
            f"launching _C_ascend::{_METADATA}: expected 'aic_core_num' in [1, {_CORES[-1]}], "
            f"found {aic_core_num}"
        )
    lengths = _read_lengths(
        _METADATA,
        ("actual_seq_lengths", actual_seq_lengths),
        ("actual_seq_lengths_kv", actual_seq_lengths_kv),
        heads=num_heads_q,
        kv_heads=num_heads_kv,
        head_dim=head_dim_qk,
        rope_dim=rope_head_dim,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layout=input_layout,
        block_size=block_size,
    )
    _require(_METADATA, "batch_size", batch_size, (0, lengths.sequences))
    assert actual_seq_lengths is not None  # noqa: S101
    made = actual_seq_lengths.new_empty(_WORDS, dtype=torch.int32)
    launch(
        f"_C_ascend::{_METADATA}",
        "cann_sim_fused_infer_attention_sink_metadata",
        made.device,
        ctypes.byref(lengths),
        ctypes.c_int64(aic_core_num),
        address(made),
    )
    return made


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Tensor | None = None,
    actual_seq_kvlen: Tensor | None = None,
    block_table: Tensor | None = None,
    meta_data: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = _ALL_TOKENS,
    next_tokens: int = _ALL_TOKENS,
    input_layout: str = "TND",
    sparse_mode: int = 0,
    block_size: int = 0,
    return_softmax_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Launch the attention of ``query`` [T, heads, D]; zeros behind the last sequence."""
    name = f"_C_ascend::{_ATTENTION}"
    lengths = _read_lengths(
        _ATTENTION,
        ("actual_seq_qlen", actual_seq_qlen),
        ("actual_seq_kvlen", actual_seq_kvlen),
        heads=num_query_heads,
        kv_heads=num_key_value_heads,
        head_dim=query.shape[-1],
        rope_dim=0 if query_rope is None else query_rope.shape[-1],
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        layout=input_layout,
        block_size=block_size,
    )
    _require(_ATTENTION, "dtype of query", query.dtype, (torch.bfloat16, torch.float16))
    if meta_data is None or block_table is None:
        missing = "meta_data" if meta_data is None else "block_table"
        raise ValueError(f"launching {name}: expected {missing!r} on the device, found none")
    require_dense(name, "meta_data", meta_data, (_WORDS,), torch.int32)
    for argument, cache in (("key", key), ("value", value)):
        _require(_ATTENTION, f"dimensions of {argument!r}", cache.dim(), (3, 4))
    output, sums = _fake_attention(
        query, input_layout=input_layout, return_softmax_lse=return_softmax_lse
    )
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "query_rope": query_rope,
        "key_rope": key_rope,
        "mask": atten_mask,
        "block_table": block_table,
        "output": output,
        "log_sum_exp": sums if return_softmax_lse else None,
    }
    call = _Call(
        lengths=lengths,
        **{field: _describe(name, field, tensor) for field, tensor in tensors.items()},
        metadata=address(meta_data),
        scale=softmax_scale,
        wants_log_sum_exp=return_softmax_lse,
    )
    launch(name, "cann_sim_fused_infer_attention_sink", query.device, ctypes.byref(call))
    return output, sums


def _fake_metadata(*_sizes: int, actual_seq_lengths: Tensor, **_given: object) -> Tensor:
    return actual_seq_lengths.new_empty(_WORDS, dtype=torch.int32)


def _fake_attention(
    query: Tensor,
    *_caches: Tensor,
    input_layout: str = "TND",
    return_softmax_lse: bool = False,
    **_given: object,
) -> tuple[Tensor, Tensor]:
    tokens, heads, width = query.shape
    rows = (heads, tokens) if input_layout == "TND_NTD" else (tokens, heads)
    sums = (tokens, heads, 1) if return_softmax_lse else (0,)
    return query.new_empty((*rows, width)), query.new_empty(sums, dtype=torch.float32)


def _read_lengths(
    operator: str,
    queries: tuple[str, Tensor | None],
    keys: tuple[str, Tensor | None],
    *,
    layout: str,
    **attributes: int,
) -> _Lengths:
    """Check what both operators are given, and return it for their kernels."""
    _require(operator, "head dimension", attributes["head_dim"], tuple(_DIMENSIONS))
    rope_dim = _DIMENSIONS[attributes["head_dim"]]
    _require(operator, "input_layout", layout, _LAYOUTS if rope_dim else _LAYOUTS[:1])
    _require(operator, "dimension of the rotary parts", attributes["rope_dim"], (rope_dim,))
    _require(operator, "sparse_mode", attributes["sparse_mode"], _SPARSE_MODES)
    places = []
    sequences = -1
    for name, tensor in (queries, keys):
        if tensor is None:
            raise ValueError(
                f"launching _C_ascend::{operator}: expected {name!r} on the device, found none"
            )
        sequences = tensor.shape[0] if sequences < 0 else sequences
        require_dense(f"_C_ascend::{operator}", name, tensor, (sequences,), torch.int64)
        places.append(address(tensor).value)
    return _Lengths(*places, sequences=sequences, layout=_LAYOUTS.index(layout), **attributes)


def _describe(operator: str, name: str, tensor: Tensor | None) -> _Tensor:
    if tensor is None:
        return _Tensor()
    require_dense(operator, name, tensor, tuple(tensor.shape), tensor.dtype)
    if tensor.dtype not in _TYPES or tensor.dim() > _SIZES:
        raise ValueError(
            f"launching {operator}: expected {name!r} of at most {_SIZES} dimensions and of a "
            f"dtype that attention reads, found {tensor.dtype} {list(tensor.shape)}"
        )
    return _Tensor(
        memory=address(tensor),
        type=_TYPES[tensor.dtype],
        item=tensor.element_size(),
        rank=tensor.dim(),
        sizes=(ctypes.c_int64 * _SIZES)(*tensor.shape),
    )


def _require(operator: str, name: str, found: object, expected: Sequence[object]) -> None:
    require_value(f"_C_ascend::{operator}", name, found, expected)
