"""Attention over the blocks of keys selected for each query, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.operator_call import call_operator

HEADS, KEY_HEADS, DIM, VALUE_DIM, SIZE, COUNT = 4, 2, 192, 128, 16, 3
QUERIES, KEYS = [5, 70], [64, 96]
CAUSAL = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(4)
    chosen = [
        torch.stack([torch.randperm(k // SIZE, generator=generator)[:COUNT] for _ in range(q * 2)])
        for q, k in zip(QUERIES, KEYS, strict=True)
    ]
    query = random(sum(QUERIES), HEADS, DIM, seed=0, dtype=dtype)
    key = random(sum(KEYS), KEY_HEADS, DIM, seed=1, dtype=dtype)
    value = random(sum(KEYS), KEY_HEADS, VALUE_DIM, seed=2, dtype=dtype)
    return query, key, value, torch.cat(chosen).view(-1, KEY_HEADS, COUNT).int()


def run(*tensors: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    results: tuple[torch.Tensor, ...] = torch_npu.npu_nsa_select_attention(
        *[t.to("npu") for t in tensors],
        0.07,
        HEADS,
        options.pop("size", SIZE),
        COUNT,
        actual_seq_qlen=torch.tensor(QUERIES).cumsum(0).tolist(),
        actual_seq_kvlen=torch.tensor(KEYS).cumsum(0).tolist(),
        **options,
    )
    return tuple(result.cpu() for result in results)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_queries_see_their_blocks(conformance: Any, dtype: torch.dtype, masked: bool) -> None:
    """With a mask torch_npu requests the causal mode, whatever the mask is."""
    query, key, value, chosen = operands(dtype)
    options = {"atten_mask": CAUSAL.to("npu")} if masked else {}
    output, largest, total = run(query, key, value, chosen, **options)
    scores = torch.full((sum(QUERIES), HEADS, max(KEYS)), -torch.inf, dtype=torch.float64)
    expected = torch.zeros(sum(QUERIES), HEADS, VALUE_DIM, dtype=torch.float64)
    token, start = 0, 0
    for length, count in zip(QUERIES, KEYS, strict=True):
        for row in range(length):
            for head in range(HEADS):
                own = head // (HEADS // KEY_HEADS)
                blocks = chosen[token, own].long()
                seen = (blocks[:, None] * SIZE + torch.arange(SIZE)).flatten()
                if masked:
                    seen = seen[seen <= row]
                if not len(seen):
                    continue
                keys = key[start + seen, own].double()
                scores[token, head, seen] = keys @ query[token, head].double() * 0.07
                weights = scores[token, head, seen].softmax(0)
                expected[token, head] = weights @ value[start + seen, own].double()
            token += 1
        start += count
    # Each weight is rounded to the dtype of the values, which are below 4.
    off = 4 * torch.finfo(dtype).eps / 2 / (400 * torch.finfo(torch.float32).eps)
    conformance.close(output, expected, ulps=400, magnitude=expected.abs() + 4 + off)
    most = scores.amax(-1).nan_to_num(neginf=0.0)
    sums = (scores - most[..., None]).exp().sum(-1)
    for result, wanted in ((largest, most), (total, sums)):
        wide = wanted[..., None].expand(-1, -1, 8)
        conformance.close(result, wide, ulps=400, magnitude=wide.abs() + 8)


def test_mask_of_mode_0_is_read_as_it_is() -> None:
    query, key, value, chosen = (t.to("npu") for t in operands(torch.float16))
    expected = run(query, key, value, chosen, atten_mask=CAUSAL.to("npu"))
    largest, total = (torch.empty(sum(QUERIES), HEADS, 8, device="npu") for _ in range(2))
    output = torch.empty(sum(QUERIES), HEADS, VALUE_DIM, dtype=torch.float16, device="npu")
    ends = [tuple(torch.tensor(lengths).cumsum(0).tolist()) for lengths in (QUERIES, KEYS)]
    call_operator(
        "aclnnNsaSelectedAttention",
        query,
        key,
        value,
        chosen,
        CAUSAL.byte().to("npu"),
        ends[0],
        ends[1],
        0.07,
        HEADS,
        b"TND",
        0,
        SIZE,
        COUNT,
        largest,
        total,
        output,
    )
    for result, wanted in zip((output, largest, total), expected, strict=True):
        assert torch.equal(result.cpu(), wanted)


def test_blocks_of_other_sizes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="argument 'selectedBlockSize': expected a multiple"):
        run(*operands(torch.float16), size=24)
