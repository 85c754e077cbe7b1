"""Which dtypes hold every value of another, so that a cast there and back changes nothing."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import torch


class _Limits(NamedTuple):
    """What a dtype has; it holds the values of those that have no more of anything.

    Of a complex dtype, what each of its two parts has.

    Attributes:
        digits: Binary digits of the significand; of an integer, those of its largest magnitude.
        smallest: Less the smallest positive value.
        largest: The largest one.
        lowest: Less the most negative one, 0 where there is none.
        zero: Whether 0 is a value.
        signed_zero: Whether -0 is one beside it.
        infinity: Whether infinities are values.
        nan: Whether NaN is.
        two_parts: Whether it is complex.
    """

    digits: int
    smallest: float
    largest: float
    lowest: float
    zero: bool = True
    signed_zero: bool = False
    infinity: bool = False
    nan: bool = False
    two_parts: bool = False


_INTEGERS = frozenset(
    {
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    }
)
# Binary digits of the significand, the implicit one included; `torch.finfo` of torch 2.13 gives too
# small an `eps` for float8_e5m2fnuz.
_DIGITS = MappingProxyType(
    {
        torch.float64: 53,
        torch.float32: 24,
        torch.float16: 11,
        torch.bfloat16: 8,
        torch.float8_e5m2: 3,
        torch.float8_e5m2fnuz: 3,
        torch.float8_e4m3fn: 4,
        torch.float8_e4m3fnuz: 4,
    }
)
# Floats of eight bits that have NaN and no infinity.
_FINITE = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def holds_every_value(wide: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether a cast of any value of `dtype` to `wide` and back gives that value.

    NaN counts as one value. Nothing is known of dtypes that are packed, quantised or bits.
    """
    if wide is dtype:
        return True
    values, held = _limits(dtype), _limits(wide)
    if values is None or held is None:
        return False
    if dtype is torch.bool:
        # What is not zero is True again.
        return held.zero
    # Casting to bool asks whether a value is zero.
    return wide is not torch.bool and all(
        has >= wanted for has, wanted in zip(held, values, strict=True)
    )


def _limits(dtype: torch.dtype) -> _Limits | None:
    if dtype is torch.bool:
        return _Limits(1, smallest=-1, largest=1, lowest=0)
    if dtype in _INTEGERS:
        limits = torch.iinfo(dtype)
        digits = max(limits.max, -limits.min - 1).bit_length()
        return _Limits(digits, smallest=-1, largest=limits.max, lowest=-limits.min)
    if dtype is torch.float8_e8m0fnu:
        # Powers of two, without a zero or a sign.
        return _Limits(1, smallest=-(2.0**-127), largest=2.0**127, lowest=0, zero=False, nan=True)
    real = dtype.to_real() if dtype.is_complex else dtype
    if real not in _DIGITS:
        return None
    floats, digits = torch.finfo(real), _DIGITS[real]
    return _Limits(
        digits,
        # The smallest subnormal number.
        smallest=-floats.smallest_normal * 2.0 ** (1 - digits),
        largest=floats.max,
        lowest=-floats.min,
        signed_zero=not str(real).endswith("fnuz"),
        infinity=real not in _FINITE,
        nan=True,
        two_parts=dtype.is_complex,
    )
