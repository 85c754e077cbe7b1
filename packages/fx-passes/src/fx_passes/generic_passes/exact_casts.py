"""Which dtypes hold every value of another, so that a cast there and back changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True, kw_only=True)
class _Range:
    """The values of a dtype; of a complex one those of each of its two parts.

    Attributes:
        digits: Binary digits of the significand; of an integer, those of its largest magnitude.
        smallest: The smallest positive value.
        largest: The largest one.
        lowest: The most negative one, 0 where there is none.
        has_zero: Whether 0 is a value.
        has_signed_zero: Whether -0 is one beside it.
        has_infinity: Whether infinities are values.
        has_nan: Whether NaN is.
        is_complex: Whether a value has two parts.
    """

    digits: int
    smallest: float
    largest: float
    lowest: float
    has_zero: bool = True
    has_signed_zero: bool = False
    has_infinity: bool = False
    has_nan: bool = False
    is_complex: bool = False

    def holds(self, other: _Range) -> bool:
        """Return whether each value of another range is one of this."""
        return (
            self.digits >= other.digits
            and self.smallest <= other.smallest
            and self.largest >= other.largest
            and self.lowest <= other.lowest
            and self.has_zero >= other.has_zero
            and self.has_signed_zero >= other.has_signed_zero
            and self.has_infinity >= other.has_infinity
            and self.has_nan >= other.has_nan
            and self.is_complex >= other.is_complex
        )


_INTEGERS = (
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
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
_PARTS = MappingProxyType(
    {
        torch.complex32: torch.float16,
        torch.complex64: torch.float32,
        torch.complex128: torch.float64,
    }
)


def holds_every_value(wide: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether a cast of any value of `dtype` to `wide` and back gives that value.

    NaN counts as one value. Nothing is known of dtypes that are packed, quantised or bits.

    Args:
        wide: The dtype between.
        dtype: The dtype before and after.
    """
    if wide is dtype:
        return True
    values, held = _range(dtype), _range(wide)
    if values is None or held is None:
        return False
    if dtype is torch.bool:
        # What is not zero is True again.
        return held.has_zero
    # Casting to bool asks whether a value is zero.
    return wide is not torch.bool and held.holds(values)


def _range(dtype: torch.dtype) -> _Range | None:
    if dtype is torch.bool:
        return _Range(digits=1, smallest=1, largest=1, lowest=0)
    if dtype in _INTEGERS:
        limits = torch.iinfo(dtype)
        digits = max(limits.max, -limits.min - 1).bit_length()
        return _Range(digits=digits, smallest=1, largest=limits.max, lowest=limits.min)
    if dtype in _PARTS:
        return _float_range(_PARTS[dtype], is_complex=True)
    if dtype in _DIGITS:
        return _float_range(dtype)
    if dtype is torch.float8_e8m0fnu:
        # Powers of two, without a zero or a sign.
        return _Range(
            digits=1, smallest=2.0**-127, largest=2.0**127, lowest=0, has_zero=False, has_nan=True
        )
    return None


def _float_range(dtype: torch.dtype, *, is_complex: bool = False) -> _Range:
    limits, digits = torch.finfo(dtype), _DIGITS[dtype]
    return _Range(
        digits=digits,
        # The smallest subnormal number.
        smallest=limits.smallest_normal * 2.0 ** (1 - digits),
        largest=limits.max,
        lowest=limits.min,
        has_signed_zero=not str(dtype).endswith("fnuz"),
        has_infinity=dtype not in _FINITE,
        has_nan=True,
        is_complex=is_complex,
    )
