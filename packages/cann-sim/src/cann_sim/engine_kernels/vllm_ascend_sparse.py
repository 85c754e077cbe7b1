"""Sparse latent attention of vllm-ascend 0.30 (DeepSeek V4), and what makes its metadata.

As in the engine's build for Atlas A2: bfloat16, queries ``TND``, caches ``PA_BBND``; over a window
of keys, or over it and compressed keys that an indexer has chosen.
"""

from __future__ import annotations

import ctypes
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

_ATTENTION = "npu_sparse_flash_mla"
_METADATA = "npu_sparse_flash_mla_metadata"
_WORDS = 1024
_WIDTH = 512
_MOST_HEADS = 128
_MOST_KEYS_OF_BLOCK = 1024
_RATIOS = (1, 2, 4)
_COUNTS = (512, 1024)
# As the engine declares them.
_LENGTHS = (
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_ori_kv=None, Tensor? cu_seqlens_cmp_kv=None, "
    "Tensor? seqused_q=None, Tensor? seqused_ori_kv=None, Tensor? seqused_cmp_kv=None, "
    "Tensor? cmp_residual_kv=None, Tensor? ori_topk_length=None, Tensor? cmp_topk_length=None, "
)
_MASKS = (
    "int cmp_ratio=0, int ori_mask_mode=0, int cmp_mask_mode=0, int ori_win_left=-1, "
    "int ori_win_right=-1, str layout_q='BSND', str layout_kv='BSND', "
)
_METADATA_SCHEMA = (
    f"(int num_heads_q, int num_heads_kv, int head_dim, *, {_LENGTHS}"
    "int batch_size=0, int max_seqlen_q=0, int max_seqlen_ori_kv=0, int max_seqlen_cmp_kv=0, "
    f"int ori_topk=0, int cmp_topk=0, {_MASKS}bool has_ori_kv=True, bool has_cmp_kv=True) -> Tensor"
)
_ATTENTION_SCHEMA = (
    "(Tensor q, *, Tensor? ori_kv=None, Tensor? cmp_kv=None, Tensor? ori_sparse_indices=None, "
    "Tensor? cmp_sparse_indices=None, Tensor? ori_block_table=None, Tensor? cmp_block_table=None, "
    f"{_LENGTHS}Tensor? sinks=None, Tensor? metadata=None, float softmax_scale=1.0, {_MASKS}"
    "int topk_value_mode=1, bool return_softmax_lse=False) -> (Tensor, Tensor)"
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
    """``SmlaLengths`` of ``native/engine_kernels/sparse_flash_mla.cpp``."""

    _fields_: ClassVar = (
        *((name, ctypes.c_void_p) for name in ("query_ends", "keys", "compressed", "residual")),
        *((name, ctypes.c_int64) for name in ("sequences", "heads", "ratio", "chosen")),
    )


class _Call(ctypes.Structure):
    """``SmlaCall`` of the same file."""

    _fields_: ClassVar = (
        ("lengths", _Lengths),
        ("query", ctypes.c_void_p),
        ("caches", ctypes.c_void_p * 2),
        ("tables", ctypes.c_void_p * 2),
        *((name, ctypes.c_void_p) for name in ("indices", "sinks", "metadata", "output")),
        ("tokens", ctypes.c_int64),
        *((name, ctypes.c_int64 * 2) for name in ("blocks", "block_size", "columns")),
        ("scale", ctypes.c_double),
    )


def _make_metadata(
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_ori_kv: int = 0,
    max_seqlen_cmp_kv: int = 0,
    has_ori_kv: bool = True,
    has_cmp_kv: bool = True,
    cmp_topk: int = 0,
    ori_topk: int = 0,
    **given: Tensor | int | str | None,
) -> Tensor:
    """Launch what divides the rows of a step among cores; returns int32 [1024]."""
    del batch_size, max_seqlen_q, max_seqlen_ori_kv, max_seqlen_cmp_kv  # for other layouts
    _require(_METADATA, "num_heads_kv", num_heads_kv, (1,))
    _require(_METADATA, "head_dim", head_dim, (_WIDTH,))
    _require(_METADATA, "has_ori_kv", has_ori_kv, (True,))
    _require(_METADATA, "ori_topk", ori_topk, (0,))
    lengths = _read_lengths(
        _METADATA, given, heads=num_heads_q, chosen=cmp_topk, is_compressed=has_cmp_kv
    )
    query_ends = given["cu_seqlens_q"]
    assert isinstance(query_ends, torch.Tensor)  # noqa: S101
    made = query_ends.new_empty(_WORDS)
    launch(
        f"_C_ascend::{_METADATA}",
        "cann_sim_sparse_flash_mla_metadata",
        made.device,
        ctypes.byref(lengths),
        address(made),
    )
    return made


def _attend(
    q: Tensor,
    *,
    ori_kv: Tensor | None = None,
    cmp_kv: Tensor | None = None,
    ori_sparse_indices: Tensor | None = None,
    cmp_sparse_indices: Tensor | None = None,
    ori_block_table: Tensor | None = None,
    cmp_block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    metadata: Tensor | None = None,
    softmax_scale: float = 1.0,
    topk_value_mode: int = 1,
    return_softmax_lse: bool = False,
    **given: Tensor | int | str | None,
) -> tuple[Tensor, Tensor]:
    """Launch the attention of ``q`` [T, heads, 512]; leaves rows behind the last sequence."""
    name = f"_C_ascend::{_ATTENTION}"
    tokens, heads = q.shape[0], q.shape[1]
    require_dense(name, "q", q, (tokens, heads, _WIDTH))
    _refuse(_ATTENTION, "ori_sparse_indices", ori_sparse_indices)
    _require(_ATTENTION, "topk_value_mode", topk_value_mode, (1,))
    _require(_ATTENTION, "return_softmax_lse", return_softmax_lse, (False,))
    if (cmp_kv is None) != (cmp_sparse_indices is None):
        raise ValueError(f"launching {name}: expected 'cmp_kv' and 'cmp_sparse_indices', found one")
    chosen = 0 if cmp_sparse_indices is None else cmp_sparse_indices.shape[-1]
    lengths = _read_lengths(
        _ATTENTION, given, heads=heads, chosen=chosen, is_compressed=cmp_kv is not None
    )
    for argument, tensor, shape, dtype in (
        ("sinks", sinks, (heads,), torch.float32),
        ("metadata", metadata, (_WORDS,), torch.int32),
        ("cmp_sparse_indices", cmp_sparse_indices, (tokens, 1, chosen), torch.int32),
    ):
        if tensor is not None:
            require_dense(name, argument, tensor, shape, dtype)
        elif argument != "cmp_sparse_indices":
            raise ValueError(f"launching {name}: expected {argument!r} {list(shape)}, found none")
    pages = [
        _read_pages("ori", ori_kv, ori_block_table, lengths.sequences),
        (None, None, 0, 0, 0)
        if cmp_kv is None
        else _read_pages("cmp", cmp_kv, cmp_block_table, lengths.sequences),
    ]
    caches, tables, *sizes = zip(*pages, strict=True)
    output, unused = _fake_attention(q)
    call = _Call(
        lengths=lengths,
        query=address(q),
        caches=(ctypes.c_void_p * 2)(*(address(cache).value for cache in caches)),
        tables=(ctypes.c_void_p * 2)(*(address(table).value for table in tables)),
        indices=address(cmp_sparse_indices),
        sinks=address(sinks),
        metadata=address(metadata),
        output=address(output),
        tokens=tokens,
        **{
            field: (ctypes.c_int64 * 2)(*pair)
            for field, pair in zip(("blocks", "block_size", "columns"), sizes, strict=True)
        },
        scale=softmax_scale,
    )
    launch(name, "cann_sim_sparse_flash_mla", q.device, ctypes.byref(call))
    return output, unused


def _fake_metadata(*_heads: int, cu_seqlens_q: Tensor, **_given: object) -> Tensor:
    return cu_seqlens_q.new_empty(_WORDS)


def _fake_attention(q: Tensor, **_given: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(0, dtype=torch.float32)


def _read_lengths(
    operator: str,
    given: dict[str, Tensor | int | str | None],
    *,
    heads: int,
    chosen: int,
    is_compressed: bool,
) -> _Lengths:
    """Check what both operators are given, and return it for their kernels."""
    name = f"_C_ascend::{operator}"
    ratio = given.get("cmp_ratio", 0)
    assert isinstance(ratio, int)  # noqa: S101
    _require(operator, "layout_q", given.get("layout_q", "BSND"), ("TND",))
    _require(operator, "layout_kv", given.get("layout_kv", "BSND"), ("PA_BBND",))
    _require(operator, "ori_mask_mode", given.get("ori_mask_mode", 0), (4,))
    _require(operator, "ori_win_left", given.get("ori_win_left", -1), (127,))
    _require(operator, "ori_win_right", given.get("ori_win_right", -1), (0,))
    _require(operator, "cmp_ratio", ratio, _RATIOS if is_compressed else (0,))
    _require(
        operator, "cmp_mask_mode", given.get("cmp_mask_mode", 0), (3,) if is_compressed else (0,)
    )
    _require(operator, "chosen keys of a row", chosen, _COUNTS if is_compressed else (0,))
    powers = [1 << power for power in range(_MOST_HEADS.bit_length())]
    _require(operator, "heads", heads, powers)
    for unused in ("cu_seqlens_ori_kv", "cu_seqlens_cmp_kv", "seqused_q", "ori_topk_length"):
        _refuse(operator, unused, given.get(unused))
    _refuse(operator, "cmp_topk_length", given.get("cmp_topk_length"))
    query_ends = given.get("cu_seqlens_q")
    sequences = query_ends.shape[0] - 1 if isinstance(query_ends, torch.Tensor) else 0
    needed = {"cu_seqlens_q", "seqused_ori_kv"}
    if is_compressed:
        needed |= {"seqused_cmp_kv"} | ({"cmp_residual_kv"} if ratio > 1 else set())
    places = []
    for argument in ("cu_seqlens_q", "seqused_ori_kv", "seqused_cmp_kv", "cmp_residual_kv"):
        tensor = given.get(argument)
        if isinstance(tensor, torch.Tensor) and (is_compressed or "cmp" not in argument):
            size = sequences + (argument == "cu_seqlens_q")
            require_dense(name, argument, tensor, (size,), torch.int32)
            places.append(address(tensor))
        elif argument in needed:
            raise ValueError(f"launching {name}: expected {argument!r} on the device, found none")
        else:
            places.append(address(None))
    return _Lengths(*(place.value for place in places), sequences, heads, ratio, chosen)


def _read_pages(
    kind: str, cache: Tensor | None, table: Tensor | None, sequences: int
) -> tuple[Tensor, Tensor, int, int, int]:
    """Check a paged cache and its table; return them with blocks, keys of a block, and columns."""
    name = f"_C_ascend::{_ATTENTION}"
    if cache is None or table is None:
        raise ValueError(f"launching {name}: expected '{kind}_kv' and '{kind}_block_table'")
    blocks, size = cache.shape[0], cache.shape[1]
    require_dense(name, f"{kind}_kv", cache, (blocks, size, 1, _WIDTH))
    require_dense(name, f"{kind}_block_table", table, (sequences, table.shape[-1]), torch.int32)
    if size % 16 or not 0 < size <= _MOST_KEYS_OF_BLOCK:
        raise ValueError(
            f"launching {name}: expected blocks of '{kind}_kv' with a multiple of 16 keys, at most "
            f"{_MOST_KEYS_OF_BLOCK}, found {size}"
        )
    return cache, table, blocks, size, table.shape[-1]


def _require(operator: str, name: str, found: object, expected: Sequence[object]) -> None:
    require_value(f"_C_ascend::{operator}", name, found, expected)


def _refuse(operator: str, name: str, tensor: object) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.numel():
        raise ValueError(
            f"launching _C_ascend::{operator}: expected no {name!r}, found a tensor; "
            f"it is not simulated"
        )
