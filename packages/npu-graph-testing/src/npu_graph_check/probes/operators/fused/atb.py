"""Operators of ATB: rows without keys, and how it quantises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import drawn, expect_close, expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HEADS, _DIM, _BLOCK = 4, 32, 16


def paged_attention(look: Look) -> None:
    """Decode two sequences, one of them without keys."""
    on, half = look.on, torch.float16
    query = drawn(2, _HEADS, _DIM, seed=0, dtype=half)
    key, value = (drawn(3, _BLOCK, _HEADS, _DIM, seed=seed, dtype=half) for seed in (1, 2))
    out = torch.full((2, _HEADS, _DIM), 7.0, dtype=half).to(on)
    table = torch.tensor([[2, 0], [1, 1]], dtype=torch.int32)
    _operator("_npu_paged_attention")(
        query=query.to(on),
        key_cache=key.to(on),
        value_cache=value.to(on),
        num_kv_heads=_HEADS,
        num_heads=_HEADS,
        scale_value=0.2,
        block_table=table.to(on),
        context_lens=torch.tensor([20, 0], dtype=torch.int32),
        out=out,
    )
    keys, values = (t[[2, 0]].flatten(0, 1)[:20].double() for t in (key, value))
    scores = torch.einsum("hd,khd->hk", query[0].double(), keys) * 0.2
    expected = torch.einsum("hk,khd->hd", scores.softmax(-1), values)
    expect_close(look, "a sequence of 20 keys", out[0], expected, 4e-3)
    expect_equal(look, "a sequence without keys", out[1], torch.zeros(_HEADS, _DIM, dtype=half))


def quantising(look: Look) -> None:
    """Quantise with an offset that a rounding before it tells from one behind it."""
    half = torch.float16
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, 100.0, -100.0, 0.0, 3.0]], dtype=half)
    scale, offset = torch.ones(1, dtype=half), torch.tensor([1], dtype=torch.int8)
    seen = torch.zeros(1, 8, dtype=torch.int8).to(look.on)
    run(look, _operator("_npu_quantize_per_tensor"), x, scale, offset, seen)
    # Rounded first, halves go to 0, 2, 2 and 0; with the offset inside they would go to 2, 2, 4, 0.
    expected = torch.tensor([[1, 3, 3, 1, 101, -99, 1, 4]], dtype=torch.int8)
    expect_equal(look, "per tensor", seen, expected)


def quantised_norm(look: Look) -> None:
    """Normalise and quantise by division; rows of 1 and -1 are their own norm."""
    half = torch.float16
    x = torch.tensor([1.0, -1.0] * 8, dtype=half).view(1, -1)
    gamma, beta = torch.full((16,), 3.0, dtype=half), torch.full((16,), 0.5, dtype=half)
    scale, offset = torch.tensor([0.25], dtype=half), torch.tensor([5], dtype=torch.int8)
    seen = torch.zeros(1, 16, dtype=torch.int8).to(look.on)
    run(look, _operator("_npu_quant_rms_norm"), x, gamma, beta, scale, offset, seen, 1e-12)
    expected = torch.tensor([19, -5] * 8, dtype=torch.int8).view(1, -1)
    expect_equal(look, "(norm * gamma + beta) / scale + offset", seen, expected)


def _operator(name: str) -> Any:
    return getattr(torch.ops.atb, name)
