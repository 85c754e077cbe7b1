"""Numbers beside tensors, scaled sums, and products of two dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_check.probes.operators.agreement import (
    HALVES,
    drawn,
    expect_equal,
    expect_refused,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_NUMBER = 1.7  # no half holds it


def numbers(look: Look) -> None:
    """Add and multiply numbers that the dtype of the tensor does not hold."""
    for dtype in HALVES:
        values = drawn(64, seed=1, dtype=dtype)
        given, wide = values.to(look.on), values.float()
        held = torch.tensor(_NUMBER).to(dtype).float()
        factor = torch.tensor(_NUMBER) if dtype is torch.bfloat16 else held
        for name, seen, expected in (
            ("a sum", given + _NUMBER, wide + held),
            ("a difference", given - _NUMBER, wide - held),
            ("a product", given * _NUMBER, wide * factor),
            ("a quotient", given / _NUMBER, wide / factor),
        ):
            expect_equal(look, f"{dtype}: {name} with {_NUMBER}", seen, expected.to(dtype))


def scaled_sums(look: Look) -> None:
    """Add and subtract a tensor that is multiplied with a number."""
    for dtype in HALVES:
        one, other = (drawn(256, seed=seed, dtype=dtype) for seed in (1, 2))
        scaled = 2.5 * other.double()
        rounded = scaled.to(dtype).double() if dtype is torch.bfloat16 else scaled
        for name, seen, expected in (
            ("a sum", run(look, torch.add, one, other, alpha=2.5), one.double() + rounded),
            ("a difference", run(look, torch.sub, one, other, alpha=2.5), one.double() - scaled),
        ):
            expect_equal(look, f"{dtype}: {name}", seen, expected.float().to(dtype))


def stepwise_products(look: Look) -> None:
    """Add scaled products and quotients of float16, which rounds every step."""
    half = torch.float16
    one, two, three = (drawn(256, seed=seed, dtype=half) for seed in range(3))
    factor = torch.tensor(0.3).half().double()
    for name, exact in (
        ("addcmul", two.double() * three.double()),
        ("addcdiv", two.double() / three.double()),
    ):
        scaled = (exact.half().double() * factor).half()
        expected = (one.double() + scaled.double()).half()
        seen = run(look, getattr(torch, name), one, two, three, value=0.3)
        expect_equal(look, f"float16: {name}", seen, expected)


def mixed_products(look: Look) -> None:
    """Multiply batches of matrices of two dtypes."""
    wide, half = drawn(2, 4, 8, seed=1).round(), drawn(2, 8, 4, seed=2).round()
    expected = torch.bmm(wide, half)
    for dtype in HALVES:
        seen = run(look, torch.bmm, wide, half.to(dtype))
        expect_equal(look, f"float32 beside {dtype}", seen, expected)
    expect_refused(look, "bfloat16 beside float16", torch.bmm, wide.bfloat16(), half.half())
