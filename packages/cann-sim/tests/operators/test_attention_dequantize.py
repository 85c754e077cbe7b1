"""Fused infer attention over int8 keys and values, against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu

from operators import drawn_tensors
from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 64, 128
integers = partial(drawn_tensors.integers, least=-127)


def parameters(
    kind: str, batch: int, keys: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scales and offsets of one kind."""
    shape = {"tensor": (1,), "channel": (1, KV_HEADS, 1, DIM), "token": (batch, keys)}[kind]
    own = torch.float32 if kind == "token" else dtype
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(shape, generator=generator).add(0.5).mul(0.015).to(own)
    return scale, random(*shape, seed=seed + 1).mul(8).to(own)


def dequantized(
    cache: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None, kind: str
) -> torch.Tensor:
    """Return [B, S, N, D] in float64."""

    def spread(values: torch.Tensor) -> torch.Tensor:
        wide = values.double()
        if kind == "token":
            return wide[:, : cache.shape[1], None, None]
        return wide if kind == "tensor" else wide.view(1, 1, KV_HEADS, DIM)

    shifted = cache.double() if offset is None else cache.double() + spread(offset)
    return shifted * spread(scale)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention of one sequence: query [S, N, D], key and value [K, KV_N, D]."""
    group = HEADS // KV_HEADS
    key, value = (t.repeat_interleave(group, 1) for t in (key, value))
    weights = (torch.einsum("snd,knd->nsk", query.double(), key) * 0.1).softmax(-1)
    return torch.einsum("nsk,knd->snd", weights, value)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result.cpu(), reference, ulps=400, magnitude=torch.tensor(5.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["tensor", "channel", "token"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("own", [1, 3])
@pytest.mark.parametrize("layout", ["BSND", "BNSD", "BSH"])
def test_int8_keys_are_dequantized(
    conformance: Any, dtype: torch.dtype, kind: str, shifted: bool, own: int, layout: str
) -> None:
    batch, keys = 2, 20
    query = random(batch, own, HEADS, DIM, seed=1, dtype=dtype)
    caches = [integers(batch, keys, KV_HEADS, DIM, seed=s) for s in (2, 3)]
    pairs = [parameters(kind, batch, keys, dtype, seed) for seed in (10, 20)]

    def laid_out(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "BSH":
            return tensor.flatten(2).to("npu")
        return (tensor.transpose(1, 2) if layout == "BNSD" else tensor).contiguous().to("npu")

    keywords = {}
    for name, (scale, offset) in zip(("key", "value"), pairs, strict=True):
        keywords[f"{name}_antiquant_scale"] = scale.to("npu")
        if shifted:
            keywords[f"{name}_antiquant_offset"] = offset.to("npu")
    output, _ = torch_npu.npu_fused_infer_attention_score(
        *(laid_out(t) for t in (query, *caches)),
        num_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        scale=0.1,
        input_layout=layout,
        key_antiquant_mode=int(kind == "token"),
        value_antiquant_mode=int(kind == "token"),
        **keywords,
    )
    wide = [
        dequantized(cache, scale, offset if shifted else None, kind)
        for cache, (scale, offset) in zip(caches, pairs, strict=True)
    ]
    expected = torch.stack([attend(query[i], wide[0][i], wide[1][i]) for i in range(batch)])
    close(conformance, output, laid_out(expected.cpu()).cpu())


def paged(dtype: torch.dtype = torch.bfloat16) -> tuple[list[torch.Tensor], dict[str, Any]]:
    query = random(2, 1, HEADS * DIM, seed=1, dtype=dtype)
    caches = [integers(5, BLOCK, KV_HEADS * DIM, seed=s) for s in (2, 3)]
    keywords: dict[str, Any] = {
        "block_table": torch.tensor([[3, 0], [1, 4]], dtype=torch.int32).to("npu"),
        "block_size": BLOCK,
        "actual_seq_lengths_kv": [7, 200],
        "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "scale": 0.1,
        "input_layout": "BSH",
    }
    return [query, *caches], keywords


@pytest.mark.parametrize("modes", [(0, 0), (1, 1), (0, 1)])
def test_int8_pages_are_dequantized(conformance: Any, modes: tuple[int, int]) -> None:
    inputs, keywords = paged()
    kinds = ["token" if mode else "channel" for mode in modes]
    scales = [
        parameters(kind, 2, 2 * BLOCK, torch.bfloat16, seed)[0]
        for kind, seed in zip(kinds, (10, 20), strict=True)
    ]
    output, _ = torch_npu.npu_fused_infer_attention_score(
        *(t.to("npu") for t in inputs),
        key_antiquant_scale=scales[0].to("npu"),
        value_antiquant_scale=scales[1].to("npu"),
        key_antiquant_mode=modes[0],
        value_antiquant_mode=modes[1],
        **keywords,
    )
    table = keywords["block_table"].cpu().long()
    wide = [
        dequantized(cache[table].reshape(2, 2 * BLOCK, KV_HEADS, DIM), scale, None, kind)
        for cache, scale, kind in zip(inputs[1:], scales, kinds, strict=True)
    ]
    expected = [
        attend(inputs[0].view(2, 1, HEADS, DIM)[i], wide[0][i, :length], wide[1][i, :length])
        for i, length in enumerate((7, 200))
    ]
    close(conformance, output, torch.stack(expected).view(2, 1, -1))


def test_refused_scales_are_named() -> None:
    inputs, keywords = paged()
    scale = torch.ones(KV_HEADS * DIM).bfloat16()
    cases: list[tuple[str, dict[str, Any]]] = [
        ("argument 'key': expected bfloat16 as 'query'", {"key": None, "value": None}),
        ("expected scales of keys and values, or of none", {"value": None}),
        (
            "argument 'keyAntiquantScale': expected one of the dtypes bfloat16",
            {"key": scale.float()},
        ),
        (r"argument 'keyAntiquantScale': expected shape \[128\]", {"key": scale[:3]}),
        ("argument 'keyAntiquantScale': expected one of the dtypes float32", {"mode": 1}),
        (r"argument 'keyAntiquantScale': expected shape \[2\]", {"mode": 2}),
        ("argument 'keyAntiquantScale': expected a mode of 0 to 5", {"mode": 6}),
    ]
    for text, changes in cases:
        found = {"key": scale, "value": scale, "mode": 0, **changes}
        scales = {
            f"{name}_antiquant_scale": None if found[name] is None else found[name].to("npu")
            for name in ("key", "value")
        }
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_fused_infer_attention_score(
                *(t.to("npu") for t in inputs),
                key_antiquant_mode=found["mode"],
                value_antiquant_mode=found["mode"],
                **scales,
                **keywords,
            )
