"""Where norms round, by the reciprocal deviation that they return themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_check.probes.operators.agreement import (
    HALVES,
    drawn,
    expect_close,
    expect_equal,
    expect_refused,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_ROWS, _WIDTH, _EPSILON = 16, 256, 1e-6


def rms_norm(look: Look) -> None:
    """Normalise, with a weight of the same dtype."""
    for dtype in HALVES:
        x, gamma = drawn(_ROWS, _WIDTH, seed=0, dtype=dtype), drawn(_WIDTH, seed=1, dtype=dtype)
        y, rstd = run(look, "npu_rms_norm", x, gamma, _EPSILON)
        expected = (x.float() * rstd.cpu() * gamma.float()).to(dtype)
        expect_equal(look, f"{dtype}: rounded once", y, expected)


def add_rms_norm(look: Look) -> None:
    """Add and normalise; the norm is rounded before it is multiplied with the weight."""
    for dtype in HALVES:
        x, gamma = drawn(_ROWS, _WIDTH, seed=0, dtype=dtype), drawn(_WIDTH, seed=1, dtype=dtype)
        y, rstd, _ = run(look, "npu_add_rms_norm", x, torch.zeros_like(x), gamma, _EPSILON)
        expected = (x.float() * rstd.cpu()).to(dtype) * gamma
        expect_equal(look, f"{dtype}: rounded before the weight", y, expected)


def rounded_sum(look: Look) -> None:
    """Add what a sum of halves loses: float16 normalises the rounded sum, bfloat16 does not."""
    for dtype, large, kept in ((torch.float16, 2048.0, 2048.0), (torch.bfloat16, 256.0, 257.0)):
        x = torch.full((1, _WIDTH), large, dtype=dtype)
        one, gamma = torch.ones_like(x), torch.ones(_WIDTH, dtype=dtype)
        _, rstd, total = run(look, "npu_add_rms_norm", x, one, gamma, _EPSILON)
        expected = torch.full((1, 1), 1 / kept, dtype=torch.float64)
        expect_close(look, f"{dtype}: deviation of {large} + 1", rstd.view(1, 1), expected, 1e-5)
        expect_equal(look, f"{dtype}: the sum", total, run(look, torch.add, x, one).cpu())


def add_rms_norm_cast(look: Look) -> None:
    """Ask for the norm in float32 as well."""
    for dtype in HALVES:
        x, gamma = drawn(_ROWS, _WIDTH, seed=0, dtype=dtype), drawn(_WIDTH, seed=1, dtype=dtype)
        given = (x, torch.zeros_like(x), gamma, _EPSILON)
        wide, y, *_ = run(look, "npu_add_rms_norm_cast", *given)
        expect_equal(look, f"{dtype}: the float32 result", wide, y.cpu().float())


def quantised_norm(look: Look) -> None:
    """Quantise a norm whose float16 value lies on the other side of a half.

    A row of 1 and 3 has the deviation of the square root of 5, and its norms are no halves.
    """
    norms = torch.tensor([1.0, 3.0], dtype=torch.float64) / 5**0.5
    for dtype, wanted in ((torch.float16, 100.494), (torch.bfloat16, 100.37)):
        x = torch.tensor([1.0, 3.0] * (_WIDTH // 2), dtype=dtype).view(1, -1)
        # One scale for all values; in float16 it is float32, so it can be chosen this finely.
        scale = (norms[1] / wanted).to(torch.float32 if dtype is torch.float16 else dtype)
        gamma, scales = torch.ones(_WIDTH, dtype=dtype), scale.expand(_WIDTH).contiguous()
        given = (x, torch.zeros_like(x), gamma, scales, None)
        y, *_ = run(look, "npu_add_rms_norm_quant", *given, epsilon=1e-12)
        held = norms.float().half() if dtype is torch.float16 else norms.float()
        expected = (held.double() / scale.double()).round()
        seen = y.cpu().reshape(-1)[:2].double()
        expect_equal(look, f"{dtype}: 1 and 3", seen, expected)


def dynamic_sum(look: Look) -> None:
    """Quantise the norm of a sum that float16 would round: its scale tells which was normalised."""
    half = torch.float16
    x = torch.full((1, _WIDTH), 2048.0, dtype=half)
    one = torch.zeros_like(x)
    one[0, 0] = 1.0
    gamma = torch.ones(_WIDTH, dtype=half)
    # torch_npu 2.10 refuses its own default of the mask.
    given = (x, one, gamma)
    found = run(look, "npu_add_rms_norm_dynamic_quant", *given, output_mask=[True, False])
    scale = found[3].reshape(1, 1)
    total = x.double() + one.double()
    expected = total.amax() / total.square().mean().sqrt() / 127
    # A rounded sum would be off by one in 2,048.
    expect_close(look, "scale of 2048 + 1", scale, expected.view(1, 1), 1e-5)


def with_beta(look: Look) -> None:
    """Add a bias to a norm before it is quantised; rows of 1 and -1 are their own norm."""
    for dtype in HALVES:
        x = torch.tensor([1.0, -1.0] * (_WIDTH // 2), dtype=dtype).view(1, -1)
        gamma, beta = (torch.full((_WIDTH,), value, dtype=dtype) for value in (3.0, 0.5))
        quantised = torch.float32 if dtype is torch.float16 else dtype
        given = (x, torch.zeros_like(x), gamma, torch.full((_WIDTH,), 0.25, dtype=quantised), None)
        y, *_ = run(look, "npu_add_rms_norm_quant", *given, beta=beta, epsilon=1e-12)
        expected = torch.tensor([14, -10] * (_WIDTH // 2), dtype=torch.int8).view(1, -1)
        expect_equal(look, f"{dtype}: (norm * 3 + 0.5) / 0.25", y, expected)


def scale_dtypes(look: Look) -> None:
    """Quantise a norm with scales of another dtype than its table has."""
    half, quantised = torch.float16, "npu_add_rms_norm_quant"
    x, gamma = torch.ones(2, _WIDTH, dtype=half), torch.ones(_WIDTH, dtype=half)
    scales, zeros = torch.ones(_WIDTH), torch.zeros(_WIDTH, dtype=torch.int32)
    y, *_ = run(look, quantised, x, torch.zeros_like(x), gamma, scales, zeros)
    expect_equal(
        look, "float32 scales and int32 zero points", y, torch.ones(2, _WIDTH).to(torch.int8)
    )
    for name, own, points in (
        ("float16 scales", scales.half(), zeros),
        ("int8 zero points", scales, zeros.to(torch.int8)),
    ):
        expect_refused(look, name, quantised, x, x, gamma, own, points)
