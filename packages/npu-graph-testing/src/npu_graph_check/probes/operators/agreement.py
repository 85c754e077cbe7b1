"""How far the results of operators are from what a row of docs/fidelity.md says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look


HALVES = (torch.bfloat16, torch.float16)


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normally distributed values on the CPU, the same in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(look: Look, operator: str | Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Call an operator with all its tensors, also those in lists, moved to the device.

    A name is that of an operator of torch_npu, which has none before the device is opened. A tensor
    that lies there already is not copied, so operators may write into it.
    """
    on = look.on

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(each) for each in value]
        return value.to(on) if isinstance(value, torch.Tensor) else value

    call = getattr(torch.ops.npu, operator) if isinstance(operator, str) else operator
    return call(*map(moved, given), **{name: moved(each) for name, each in options.items()})


def expect_equal(look: Look, what: str, seen: torch.Tensor, expected: torch.Tensor) -> None:
    """Expect that every value is equal, and write down how many are not.

    The expected tensor lies on the CPU, and has the same shape and dtype.
    """
    result = seen.cpu()
    if result.shape != expected.shape or result.dtype != expected.dtype:
        look.expect(
            what, [str(result.dtype), *result.shape], [str(expected.dtype), *expected.shape]
        )
        return
    same = (result == expected) | (result.isnan() & expected.isnan())
    look.expect(f"{what}: values that differ", int((~same).sum()), 0)


def expect_close(
    look: Look, what: str, seen: torch.Tensor, expected: torch.Tensor, share: float
) -> None:
    """Expect that no value is farther off than a share of the largest one.

    The expected tensor is float64 on the CPU, of the same shape.
    """
    result = seen.cpu().double()
    if result.shape != expected.shape:
        look.expect(what, list(result.shape), list(expected.shape))
        return
    bound = expected.abs().max().item() if expected.numel() else 0.0
    off = (result - expected).abs().max().item() if expected.numel() else 0.0
    near = not math.isnan(off) and off <= share * bound
    look.expect(f"{what}: within {share:g} of the largest value", near, True)


def expect_refused(
    look: Look, what: str, operator: str | Callable[..., object], *given: Any, **options: Any
) -> None:
    """Expect that an operator refuses what it is given, see `run`."""
    try:
        run(look, operator, *given, **options)
    except RuntimeError:
        seen = "refused"
    else:
        seen = "taken"
    look.expect(what, seen, "refused")
