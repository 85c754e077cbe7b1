"""Functions over lists of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from operators.operator_case import FLOATS, Case, Values

if TYPE_CHECKING:
    from collections.abc import Callable

UNARY = """
    abs acos asin atan cos cosh erf erfc exp expm1 log log10 log1p log2 neg reciprocal sigmoid sign
    sin sinh sqrt tan tanh
"""
INSIDE = Values(low=0.1, high=0.9)
TWO = (Values(), INSIDE)
THREE = (Values(), Values(), INSIDE)


def unary(name: str) -> Case:
    function: Callable[..., Any] = getattr(torch, f"_foreach_{name}")
    return Case(
        operator=f"aclnnForeach{name.capitalize()}",
        call=lambda x: function([x, x * 0.5]),
        inputs=(INSIDE,),
        magnitude=16,
    )


# Of float16 every step rounds: see test_arithmetic.py.
WIDE = (torch.bfloat16, torch.float32)


def listed(
    operator: str,
    function: Callable[..., Any],
    inputs: tuple[Values, ...] = TWO,
    dtypes: tuple[torch.dtype, ...] = FLOATS,
) -> Case:
    """Return a case that gives a function of lists each input and half of it."""
    return Case(
        operator=f"aclnnForeach{operator}",
        call=lambda *values: function(*[[value, value * 0.5] for value in values]),
        inputs=inputs,
        dtypes=dtypes,
        magnitude=32,
    )


def weights() -> torch.Tensor:
    return torch.tensor([0.5, -1.5])


def copied(lists: list[torch.Tensor]) -> list[torch.Tensor]:
    targets = [torch.empty_like(values) for values in lists]
    torch._foreach_copy_(targets, lists)
    return targets


def zeroed(lists: list[torch.Tensor]) -> list[torch.Tensor]:
    targets = [values.clone() for values in lists]
    torch._foreach_zero_(targets)
    return targets


CASES = (
    *[unary(name) for name in UNARY.split()],
    listed("AddListV2", lambda x, y: torch._foreach_add(x, y, alpha=2)),
    listed("SubListV2", lambda x, y: torch._foreach_sub(x, y, alpha=2)),
    listed("MulList", torch._foreach_mul),
    listed("DivList", torch._foreach_div),
    listed("MaximumList", torch._foreach_maximum),
    listed("MinimumList", torch._foreach_minimum),
    listed("PowList", torch._foreach_pow, (INSIDE, Values())),
    listed("AddScalarV2", lambda x: torch._foreach_add(x, 1.5), (Values(),)),
    listed("SubScalarV2", lambda x: torch._foreach_sub(x, 1.5), (Values(),)),
    listed("MulScalarV2", lambda x: torch._foreach_mul(x, 1.5), (Values(),)),
    listed("DivScalarV2", lambda x: torch._foreach_div(x, 1.5), (Values(),)),
    listed("PowScalarV2", lambda x: torch._foreach_pow(x, 1.5), (INSIDE,)),
    listed("MaximumScalarV2", lambda x: torch._foreach_maximum(x, 0.5), (Values(),)),
    listed("MinimumScalarV2", lambda x: torch._foreach_minimum(x, 0.5), (Values(),)),
    listed("AddScalarList", lambda x: torch._foreach_add(x, [1.5, -2.0]), (Values(),)),
    listed("SubScalarList", lambda x: torch._foreach_sub(x, [1.5, -2.0]), (Values(),)),
    listed("MulScalarList", lambda x: torch._foreach_mul(x, [1.5, -2.0]), (Values(),)),
    listed("DivScalarList", lambda x: torch._foreach_div(x, [1.5, -2.0]), (Values(),)),
    listed("PowScalarList", lambda x: torch._foreach_pow(x, [1.5, -2.0]), (INSIDE,)),
    listed("MaximumScalarList", lambda x: torch._foreach_maximum(x, [0.5, -0.5]), (Values(),)),
    listed("MinimumScalarList", lambda x: torch._foreach_minimum(x, [0.5, -0.5]), (Values(),)),
    listed("AddcmulScalarV2", lambda x, y, z: torch._foreach_addcmul(x, y, z, 0.5), THREE, WIDE),
    listed("AddcdivScalarV2", lambda x, y, z: torch._foreach_addcdiv(x, y, z, 0.5), THREE, WIDE),
    listed("LerpScalar", lambda x, y: torch._foreach_lerp(x, y, 0.25)),
    listed("LerpList", torch._foreach_lerp, THREE),
    listed("PowScalarAndTensor", lambda x: torch._foreach_pow(1.5, x), (Values(),)),
    listed("RoundOffNumberV2", torch._foreach_floor, (Values(),)),
    listed("Norm", torch._foreach_norm, (Values(),)),
    listed(
        "AddcmulScalarList", lambda x, y, z: torch._foreach_addcmul(x, y, z, weights()), THREE, WIDE
    ),
    listed(
        "AddcdivScalarList", lambda x, y, z: torch._foreach_addcdiv(x, y, z, weights()), THREE, WIDE
    ),
    listed("Copy", copied, (Values(),)),
    listed("ZeroInplace", zeroed, (Values(),)),
)
