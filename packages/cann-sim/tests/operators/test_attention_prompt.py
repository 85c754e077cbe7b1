"""The older operators for inference attention: prompt and incremental, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
HEADS, DIM, BATCH = 4, 64, 2


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor | None = None
) -> torch.Tensor:
    """[B, N, S, D] in float64."""
    group = query.shape[1] // key.shape[1]
    key, value = (t.double().repeat_interleave(group, 1) for t in (key, value))
    scores = query.double() @ key.mT * 0.1
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ value


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result.cpu(), reference, ulps=200, magnitude=torch.tensor(4.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["BNSD", "BSH"])
def test_prompt_attention_masks_later_keys(
    conformance: Any, dtype: torch.dtype, layout: str
) -> None:
    query = random(BATCH, HEADS, 6, DIM, seed=0, dtype=dtype)
    key, value = (random(BATCH, 2, 6, DIM, seed=s, dtype=dtype) for s in (1, 2))

    def stored(t: torch.Tensor) -> torch.Tensor:
        return t if layout == "BNSD" else t.transpose(1, 2).flatten(2).contiguous()

    hidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    result = torch_npu.npu_prompt_flash_attention(
        stored(query).to("npu"),
        stored(key).to("npu"),
        stored(value).to("npu"),
        atten_mask=hidden.to("npu"),
        num_heads=HEADS,
        num_key_value_heads=2,
        scale_value=0.1,
        input_layout=layout,
        pre_tokens=65535,
        next_tokens=65535,
    )
    close(conformance, result, stored(attend(query, key, value, hidden)))


@pytest.mark.parametrize("dtype", HALVES)
def test_incremental_attention_reads_as_far_as_the_sequence(
    conformance: Any, dtype: torch.dtype
) -> None:
    query = random(BATCH, HEADS, 1, DIM, seed=0, dtype=dtype)
    key, value = (random(BATCH, HEADS, 9, DIM, seed=s, dtype=dtype) for s in (1, 2))
    result = torch_npu.npu_incre_flash_attention(
        query.to("npu"),
        key.to("npu"),
        value.to("npu"),
        num_heads=HEADS,
        scale_value=0.1,
        input_layout="BNSD",
        actual_seq_lengths=[4, 9],
    )
    hidden = torch.arange(9)[None, None, None] >= torch.tensor([4, 9])[:, None, None, None]
    close(conformance, result, attend(query, key, value, hidden))


def test_incremental_attention_dequantises_both_caches_with_one_tensor(conformance: Any) -> None:
    query = random(BATCH, HEADS, 1, DIM, seed=0, dtype=torch.float16)
    generator = torch.Generator().manual_seed(1)
    caches = [
        torch.randint(-127, 128, (BATCH, HEADS, 5, DIM), generator=generator) for _ in range(2)
    ]
    scale = random(2, HEADS, 1, DIM, seed=2, dtype=torch.float16).abs().mul(0.02)
    offset = random(2, HEADS, 1, DIM, seed=3, dtype=torch.float16)
    result = torch_npu.npu_incre_flash_attention(
        query.to("npu"),
        *(cache.to(torch.int8).to("npu") for cache in caches),
        antiquant_scale=scale.to("npu"),
        antiquant_offset=offset.to("npu"),
        num_heads=HEADS,
        scale_value=0.1,
        input_layout="BNSD",
    )
    key, value = (
        (cache.double() + o.double()) * s.double()
        for cache, s, o in zip(caches, scale, offset, strict=True)
    )
    close(conformance, result, attend(query, key, value))


def test_incremental_attention_refuses_several_positions() -> None:
    x = random(1, HEADS, 2, DIM, seed=0, dtype=torch.float16).to("npu")
    with pytest.raises(RuntimeError, match="argument 'query': expected one position"):
        torch_npu.npu_incre_flash_attention(x, x, x, num_heads=HEADS, input_layout="BNSD")
