"""Writing keys and values into a cache."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch_npu

from operators import drawn_tensors

BLOCKS, BLOCK, HEADS, DIM = 5, 16, 2, 32
random = partial(drawn_tensors.random, dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_scatter_nd_update_writes_rows(dtype: torch.dtype, index: torch.dtype) -> None:
    cache, rows = random(20, 8, dtype=dtype), random(3, 8, seed=1, dtype=dtype)
    slots = torch.tensor([[7], [0], [19]]).to(index)
    device = cache.to("npu")
    torch_npu.npu_scatter_nd_update_(device, slots.to("npu"), rows.to("npu"))
    expected = cache.clone()
    expected[slots[:, 0].long()] = rows
    assert torch.equal(device.cpu(), expected)


def test_scatter_nd_update_addresses_several_dimensions() -> None:
    cache, values = random(4, 5, 6), random(2, 6, seed=1)
    places = torch.tensor([[0, 4], [3, 1]])
    device = cache.to("npu")
    torch_npu.npu_scatter_nd_update_(device, places.to("npu"), values.to("npu"))
    expected = cache.clone()
    expected[places[:, 0], places[:, 1]] = values
    assert torch.equal(device.cpu(), expected)


def test_index_outside_the_cache_is_reported() -> None:
    device = random(4, 8).to("npu")
    torch_npu.npu_scatter_nd_update_(device, torch.tensor([[4]]).to("npu"), random(1, 8).to("npu"))
    with pytest.raises(RuntimeError):
        torch_npu.npu.synchronize()


@pytest.mark.parametrize("mode", ["Norm", "PA_NZ", None])
@pytest.mark.parametrize("slot_dtype", [torch.int32, torch.int64])
def test_scatter_pa_kv_cache_writes_slots(mode: str | None, slot_dtype: torch.dtype) -> None:
    key, value = random(4, HEADS, DIM), random(4, HEADS, DIM, seed=1)
    slots = torch.tensor([3, 79, 16, 40])
    shape = (BLOCKS, BLOCK, HEADS, DIM)
    plain = [random(*shape, seed=2), random(*shape, seed=3)]

    def stored(cache: torch.Tensor) -> torch.Tensor:
        if mode != "PA_NZ":
            return cache.clone()
        pieces = cache.reshape(BLOCKS, BLOCK, HEADS * DIM // 16, 16)
        return pieces.permute(0, 2, 1, 3).contiguous()

    caches = [stored(cache).to("npu") for cache in plain]
    torch_npu.npu_scatter_pa_kv_cache(
        key.to("npu"), value.to("npu"), *caches, slots.to(slot_dtype).to("npu"), cache_mode=mode
    )
    for cache, rows, device in zip(plain, (key, value), caches, strict=True):
        expected = cache.clone()
        expected.view(-1, HEADS, DIM)[slots] = rows
        assert torch.equal(device.cpu(), stored(expected))


def test_cache_of_another_shape_is_refused() -> None:
    key = random(4, HEADS, DIM).to("npu")
    cache = random(BLOCKS, BLOCK, HEADS, DIM // 2).to("npu")
    slots = torch.arange(4).to("npu")
    with pytest.raises(RuntimeError, match=r"aclnnScatterPaKvCache: argument 'keyCacheRef'"):
        torch_npu.npu_scatter_pa_kv_cache(key, key, cache, cache, slots, cache_mode="Norm")


def test_scatter_update_writes_at_a_position_of_each_sequence() -> None:
    cache, update = random(3, HEADS, 10, DIM), random(3, HEADS, 2, DIM, seed=1)
    starts = torch.tensor([0, 8, 3])
    device = cache.to("npu")
    torch_npu.scatter_update_(device, starts.to("npu"), update.to("npu"), 2)
    for index, start in enumerate(starts.tolist()):
        cache[index, :, start : start + 2] = update[index]
    assert torch.equal(device.cpu(), cache)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_scatter_pa_cache_writes_the_keys_alone(dtype: torch.dtype, index: torch.dtype) -> None:
    key = random(4, HEADS, DIM).mul(20).to(dtype)
    cache = random(BLOCKS, BLOCK, HEADS, DIM, seed=1).mul(20).to(dtype)
    slots = torch.tensor([3, 79, 17, 0])
    device = cache.to("npu")
    torch_npu.npu_scatter_pa_cache(key.to("npu"), slots.to(index).to("npu"), key_cache=device)
    expected = cache.clone()
    expected.view(-1, HEADS, DIM)[slots] = key
    assert torch.equal(device.cpu(), expected)
