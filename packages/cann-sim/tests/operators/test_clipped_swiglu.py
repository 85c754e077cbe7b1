"""Clipped SwiGLU and the GELU gate against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators import drawn_tensors

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
random = partial(drawn_tensors.random, scale=4)


@given(
    rows=st.integers(0, 6),
    width=st.integers(1, 9),
    dtype=st.sampled_from(FLOATS),
    interleaved=st.booleans(),
    grouped=st.booleans(),
)
@settings(max_examples=20)
def test_clipped_swiglu_clips_both_parts(
    conformance: Any, rows: int, width: int, dtype: torch.dtype, interleaved: bool, grouped: bool
) -> None:
    x = random(rows, 2 * width, dtype=dtype)
    groups = torch.tensor([1, 2])
    result = torch_npu.npu_clipped_swiglu(
        x.to("npu"),
        group_index=groups.to("npu") if grouped else None,
        dim=-1,
        alpha=1.702,
        limit=3.0,
        bias=1.0,
        interleaved=interleaved,
    ).cpu()
    wide = x.double()
    gate, linear = (wide[:, ::2], wide[:, 1::2]) if interleaved else wide.chunk(2, -1)
    gate, linear = gate.clamp(max=3.0), linear.clamp(-3.0, 3.0)
    expected = gate * torch.sigmoid(1.702 * gate) * (linear + 1.0)
    if grouped:
        expected[3:] = 0
    conformance.close(result, expected, ulps=32, magnitude=torch.tensor(12.0).double())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_mul_gates_the_second_half(
    conformance: Any, dtype: torch.dtype, approximate: str
) -> None:
    x = random(3, 40, dtype=dtype)
    result = torch_npu.npu_gelu_mul(x.to("npu"), approximate=approximate).cpu()
    gate, linear = x.double().chunk(2, -1)
    expected = torch.nn.functional.gelu(gate, approximate=approximate) * linear
    bound = (gate * linear).abs()
    conformance.close(result, expected, ulps=32, magnitude=bound)
