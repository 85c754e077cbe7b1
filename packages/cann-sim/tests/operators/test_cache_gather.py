"""Reading a paged cache back, and quantising into a cache, against plain indexing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu

from operators import drawn_tensors

BLOCKS, BLOCK, HEADS, DIM = 5, 16, 2, 32
random = partial(drawn_tensors.random, dtype=torch.float16)


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_gather_follows_the_block_table(cumulative: bool, shifted: bool) -> None:
    key, value = (random(BLOCKS, BLOCK, HEADS, DIM, seed=s) for s in (0, 1))
    table = torch.tensor([[3, 0, 1], [4, 9, 2]]).int()
    lengths, offsets = [20, 33], [16, 0]
    numbers = torch.tensor([0, 20, 53] if cumulative else lengths).int()
    out = [torch.full((53, HEADS, DIM), 7.0).half().to("npu") for _ in range(2)]
    torch_npu.npu_gather_pa_kv_cache(
        key.to("npu"),
        value.to("npu"),
        table.to("npu"),
        numbers.to("npu"),
        *out,
        seq_offset=torch.tensor(offsets).int().to("npu") if shifted else None,
        is_seq_lens_cumsum=cumulative,
    )
    for cache, result in zip((key, value), out, strict=True):
        expected = torch.zeros(53, HEADS, DIM).half()
        row = 0
        for index, length in enumerate(lengths):
            first = offsets[index] // BLOCK if shifted else 0
            for place in range(length):
                block = int(table[index, first + place // BLOCK])
                # The second sequence names a block that the cache does not have.
                if block < BLOCKS:
                    expected[row] = cache[block, place % BLOCK]
                row += 1
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_quant_scatter_writes_rounded_updates(conformance: Any, dtype: torch.dtype) -> None:
    cache = torch.zeros(3, 2, 8, 32).to(torch.int8)
    updates = random(3, 2, 2, 32, seed=0).mul(20).to(dtype)
    own = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    scales = random(1, 1, 1, 32, seed=1).abs().add(0.5).to(own)
    starts = torch.tensor([0, 6, 3]).int()
    result = torch_npu.npu_quant_scatter(
        cache.to("npu"),
        starts.to("npu"),
        updates.to("npu"),
        scales.to("npu"),
        None,
        -2,
        -1,
        "update",
    ).cpu()
    for index, start in enumerate(starts.tolist()):
        expected = updates[index].double() / scales[0].double()
        conformance.quantized(result[index, :, start : start + 2], expected)
    assert result.ne(0).any(-1).sum() <= 3 * 2 * 2


def test_gather_refuses_rows_of_another_width() -> None:
    key = random(BLOCKS, BLOCK, HEADS, DIM, seed=0).to("npu")
    table, lengths = torch.zeros(1, 2).int().to("npu"), torch.tensor([3]).int().to("npu")
    rows = random(3, HEADS, DIM // 2, seed=0).to("npu")
    with pytest.raises(RuntimeError, match=r"aclnnGatherPaKvCache: argument 'keyRef'"):
        torch_npu.npu_gather_pa_kv_cache(key, key, table, lengths, rows, rows)
