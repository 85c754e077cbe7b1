"""Activations and rotations: which form, and where they round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from npu_graph_check.probes.operators.agreement import HALVES, drawn, expect_close, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def gelu(look: Look) -> None:
    """Compare `gelu` with its two forms, which differ by 4e-4 near 2."""
    x = torch.linspace(-4, 4, 256)
    tanh = functional.gelu(x.double(), approximate="tanh")
    for form in ("none", "tanh"):
        seen = functional.gelu(x.to(look.on), approximate=form)
        expect_close(look, f"approximate={form!r} is the tanh form", seen, tanh, 1e-5)


def geglu(look: Look) -> None:
    """Multiply a half with the activation of the other: each result is rounded once."""
    for dtype in HALVES:
        x = drawn(4, 64, seed=0, dtype=dtype) * 3
        product, activated = run(look, "npu_geglu", x, -1, 1, True)
        gate, up = x.double().chunk(2, -1)
        exact = functional.gelu(gate, approximate="tanh")
        share = 1.01 * torch.finfo(dtype).eps / 2
        expect_close(look, f"{dtype}: the product", product, exact * up, share)
        expect_close(look, f"{dtype}: the activation", activated, exact, share)


def rotary(look: Look) -> None:
    """Rotate halves, by halves and by neighbours: rounded once."""
    for dtype in HALVES:
        x, angles = drawn(2, 4, 5, 64, seed=0, dtype=dtype), drawn(1, 1, 5, 64, seed=1)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        share = 1.01 * torch.finfo(dtype).eps / 2
        for mode in ("half", "interleave"):
            wide = x.double()
            turned = torch.empty_like(wide)
            if mode == "half":
                turned[..., :32], turned[..., 32:] = -wide[..., 32:], wide[..., :32]
            else:
                turned[..., ::2], turned[..., 1::2] = -wide[..., 1::2], wide[..., ::2]
            expected = wide * cos.double() + turned * sin.double()
            seen = run(look, "npu_rotary_mul", x, cos, sin, mode)
            expect_close(look, f"{dtype}: {mode}", seen, expected, share)


def interleaved(look: Look) -> None:
    """Sort neighbours into halves, and rotate these."""
    x, angles = drawn(2, 3, 5, 64, seed=0).half(), drawn(2, 1, 5, 64, seed=1)
    cos, sin = angles.cos().half(), angles.sin().half()
    seen = run(look, "npu_interleave_rope", x, cos, sin)
    halves = torch.cat([x[..., ::2], x[..., 1::2]], -1).double()
    turned = torch.cat([-halves[..., 32:], halves[..., :32]], -1)
    expected = halves * cos.double() + turned * sin.double()
    expect_close(look, "float16", seen, expected, 1e-3)
