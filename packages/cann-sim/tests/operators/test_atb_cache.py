"""Paged caches of ATB: rows written to slots and read back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.paged_batch import PagedBatch

SLOTS = torch.tensor([35, 0, -1, 16, 63], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_keys_and_values_are_written_to_their_slots(dtype: torch.dtype) -> None:
    key, value = random(5, 2, 8, seed=1, dtype=dtype), random(5, 2, 4, seed=2, dtype=dtype)
    key_cache = random(4, 16, 2, 8, seed=3, dtype=dtype)
    value_cache = random(4, 16, 2, 4, seed=4, dtype=dtype)
    written = key_cache.to("npu"), value_cache.to("npu")
    torch_npu._npu_reshape_and_cache(key.to("npu"), value.to("npu"), *written, SLOTS.to("npu"))
    for cache, rows, result in zip((key_cache, value_cache), (key, value), written, strict=True):
        for row, slot in enumerate(SLOTS.tolist()):
            if slot >= 0:
                cache[slot // 16, slot % 16] = rows[row]
        assert torch.equal(result.cpu(), cache)


def test_keys_alone_are_written_to_their_slots() -> None:
    key = torch.arange(40, dtype=torch.int8).view(5, 1, 8)
    cache = torch.full((4, 16, 1, 8), -1, dtype=torch.int8)
    written = cache.to("npu")
    torch_npu._npu_reshape_and_cache_siso(key.to("npu"), written, SLOTS.to("npu"))
    for row, slot in enumerate(SLOTS.tolist()):
        if slot >= 0:
            cache[slot // 16, slot % 16] = key[row]
    assert torch.equal(written.cpu(), cache)


def test_captured_write_reads_the_slots_of_each_replay(npu: Any) -> None:
    key, cache = torch.ones(1, 1, 8).half().to("npu"), torch.zeros(1, 16, 1, 8).half().to("npu")
    slot, graph = torch.tensor([3], dtype=torch.int32).to("npu"), npu.NPUGraph()
    with npu.graph(graph):
        torch_npu._npu_reshape_and_cache_siso(key, cache, slot)
    npu.synchronize()
    assert not cache.cpu().any()
    for number in (3, 5):
        slot.fill_(number)
        graph.replay()
    npu.synchronize()
    assert cache.cpu()[0, :, 0, 0].nonzero().flatten().tolist() == [3, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_indices": torch.zeros(5, dtype=torch.int64)}, "'slot_indices': .*int64"),
        ({"slot_indices": torch.zeros(4, dtype=torch.int32)}, "'slot_indices': expected"),
        ({"key_cache": torch.zeros(4, 16, 1, 8).half()}, "'key_cache': expected"),
        ({"value_cache": torch.zeros(4, 16, 2, 8).bfloat16()}, "'value_cache': expected"),
        ({"key": torch.zeros(5, 2, 8)}, "'key': expected .*float32"),
    ],
)
def test_write_with_wrong_arguments_is_refused(
    npu: Any, changes: dict[str, torch.Tensor], message: str
) -> None:
    rows, cache = torch.zeros(5, 2, 8).half(), torch.zeros(4, 16, 2, 8).half()
    given = {"key": rows, "value": rows, "key_cache": cache, "value_cache": cache}
    moved = {n: t.to("npu") for n, t in {**given, "slot_indices": SLOTS, **changes}.items()}
    with (
        npu.stream(npu.SyncLaunchStream()),
        pytest.raises(RuntimeError, match=f"(?s)ReshapeAndCacheOperation.*{message}"),
    ):
        torch_npu._npu_reshape_and_cache(**moved)


def test_slot_outside_the_cache_fails_when_it_runs(npu: Any) -> None:
    key, cache = torch.zeros(1, 2, 8).half().to("npu"), torch.zeros(4, 16, 2, 8).half().to("npu")
    torch_npu._npu_reshape_and_cache_siso(key, cache, torch.tensor([64]).int().to("npu"))
    with pytest.raises(RuntimeError, match="'slot_indices': expected slots below 64, found 64"):
        npu.synchronize()


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("starts", [None, [0, 33, 16]])
def test_pages_are_read_back_as_packed_rows(cumulative: bool, starts: list[int] | None) -> None:
    lengths = [5, 40, 17]
    batch = PagedBatch([80, 80, 80], value_dim=16)
    given = torch.tensor(lengths, dtype=torch.int32)
    if cumulative:
        given = torch.nn.functional.pad(given.cumsum(0), (1, 0)).int()
    key, value = torch_npu.atb.npu_paged_cache_load(
        *(t.to("npu") for t in (batch.key, batch.value, batch.table, given)),
        seq_starts=None if starts is None else torch.tensor(starts).int().to("npu"),
        cumsum=cumulative,
    )
    for cache, result in ((batch.key, key), (batch.value, value)):
        rows = []
        for index, length in enumerate(lengths):
            # A start within a block counts as that of the block.
            start = 0 if starts is None else starts[index] // batch.block * batch.block
            rows.append(batch.rows(cache, index, start + length)[start:])
        assert torch.equal(result.cpu(), torch.cat(rows))
