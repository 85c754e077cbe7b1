"""Fused infer attention over five-dimensional (NZ) caches: the same result as over pages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
BLOCKS, BLOCK, KEYS = 6, 128, [200, 7]


def in_units(cache: torch.Tensor) -> torch.Tensor:
    """Turn [blocks, heads, block size, dim] into [blocks, heads, dim / unit, block size, unit]."""
    unit = 32 // cache.element_size()
    return cache.view(*cache.shape[:3], -1, unit).transpose(2, 3).contiguous()


def pages() -> dict[str, Any]:
    return {
        "block_table": torch.tensor([[3, 0], [1, 4]], dtype=torch.int32).to("npu"),
        "block_size": BLOCK,
        "actual_seq_lengths_kv": KEYS,
    }


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["BSND", "BSND_NBSD", "TND", "TND_NTD"])
def test_latent_units_give_what_latent_pages_give(dtype: torch.dtype, layout: str) -> None:
    packed = layout.startswith("TND")
    shape = (2, 8) if packed else (2, 1, 8)
    query, rope = (random(*shape, d, seed=d, dtype=dtype).to("npu") for d in (512, 64))
    key, key_rope = (random(BLOCKS, 1, BLOCK, d, seed=d + 1, dtype=dtype) for d in (512, 64))

    def run(latent: torch.Tensor, latent_rope: torch.Tensor) -> torch.Tensor:
        latent, latent_rope = latent.to("npu"), latent_rope.to("npu")
        output, _ = torch_npu.npu_fused_infer_attention_score(
            query,
            latent,
            latent,
            query_rope=rope,
            key_rope=latent_rope,
            num_heads=8,
            num_key_value_heads=1,
            scale=0.04,
            input_layout=layout,
            **({"actual_seq_lengths": [1, 2]} if packed else {}),
            **pages(),
        )
        result: torch.Tensor = output.cpu()
        return result

    # Batched queries take pages of three dimensions.
    plain = [t if packed else t.squeeze(1) for t in (key, key_rope)]
    assert torch.equal(run(in_units(key), in_units(key_rope)), run(*plain))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["BNSD", "BSND"])
def test_int8_units_give_what_int8_pages_give(dtype: torch.dtype, layout: str) -> None:
    heads, kv_heads, dim = 10, 1, 128
    shape = (2, heads, 1, dim) if layout == "BNSD" else (2, 1, heads, dim)
    query = random(*shape, seed=1, dtype=dtype).to("npu")
    generator = torch.Generator().manual_seed(2)
    caches = [
        torch.randint(-127, 128, (BLOCKS, kv_heads, BLOCK, dim), generator=generator).to(torch.int8)
        for _ in range(2)
    ]
    scale = random(kv_heads * dim, seed=3, dtype=dtype).abs().mul(0.01).to("npu")

    def run(*given: torch.Tensor) -> torch.Tensor:
        output, _ = torch_npu.npu_fused_infer_attention_score(
            query,
            *(cache.to("npu") for cache in given),
            num_heads=heads,
            num_key_value_heads=kv_heads,
            scale=0.08,
            input_layout=layout,
            inner_precise=1,
            key_antiquant_scale=scale,
            value_antiquant_scale=scale,
            key_antiquant_mode=0,
            value_antiquant_mode=0,
            **pages(),
        )
        result: torch.Tensor = output.cpu()
        return result

    assert torch.equal(run(*map(in_units, caches)), run(*caches))


def test_units_that_do_not_fit_are_refused() -> None:
    query, rope = (random(2, 8, 1, d, seed=d, dtype=torch.float16).to("npu") for d in (512, 64))
    key, key_rope = (
        in_units(random(BLOCKS, 1, BLOCK, d, seed=d, dtype=torch.float16)).to("npu")
        for d in (512, 64)
    )
    given = {"num_heads": 8, "num_key_value_heads": 1, "query_rope": rope, **pages()}
    with pytest.raises(RuntimeError, match=r"(?s)inputLayout"):
        torch_npu.npu_fused_infer_attention_score(
            query, key, key, key_rope=key_rope, input_layout="BNSD_NBSD", **given
        )
    narrow = key.view(*key.shape[:3], 2 * BLOCK, 8)
    with pytest.raises(RuntimeError, match=r"(?s)units of 32 bytes"):
        torch_npu.npu_fused_infer_attention_score(
            query.transpose(1, 2).contiguous(),
            narrow,
            narrow,
            key_rope=key_rope,
            input_layout="BSND",
            **{**given, "query_rope": rope.transpose(1, 2).contiguous()},
        )
