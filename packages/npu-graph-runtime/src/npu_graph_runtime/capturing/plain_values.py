"""Values other than tensors that a graph fixes at capture, and how they are compared."""

from __future__ import annotations

import copy
import enum
import math
import sys
from typing import Any

import torch

_PLAIN_TYPES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    enum.Enum,
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_MUTABLE_TYPES = (set, bytearray)
# Streams and the like compare by value, and a graph has streams of its own.
_NOT_COMPARED = frozenset({"torch", "torch_npu"})


def is_plain(value: object) -> bool:
    """Return whether a value is fixed at capture and can be compared.

    True for numbers, strings, ranges and the like, NumPy scalars and arrays, sets, and objects of
    any class that defines equality and a hash. False for objects that are equal only to themselves.
    """
    if isinstance(value, (*_PLAIN_TYPES, *_MUTABLE_TYPES)) or _is_numpy(value):
        return True
    kind = type(value)
    return (
        kind.__eq__ is not object.__eq__
        and kind.__hash__ not in {None, object.__hash__}
        and kind.__module__.partition(".")[0] not in _NOT_COMPARED
    )


def needs_a_look(value: object) -> bool:
    """Return whether a plain value can only be compared by `same_value`, not by ``==``.

    True for mutable values, and for zeros, which have a sign.
    """
    if isinstance(value, (*_MUTABLE_TYPES, complex)):
        return True
    # Integers of numpy compare as Python's do, and its doubles are Python's.
    return _is_numpy(value) and not isinstance(value, float) and not _is_integer(value)


def snapshot(value: Any) -> Any:
    """Return a copy of a plain value that later changes do not affect."""
    is_mutable = isinstance(value, _MUTABLE_TYPES) or _is_numpy(value)
    return copy.copy(value) if is_mutable else value


def same_value(now: Any, expected: Any) -> bool:
    """Return whether a plain value has the type and the value of another one.

    Numbers are compared bitwise: a zero with another sign differs, and NaN equals itself.
    """
    if type(now) is not type(expected):
        return False
    if isinstance(now, (float, complex)):
        return _same_float(now.real, expected.real) and _same_float(now.imag, expected.imag)
    if _is_numpy(now):
        return _same_array(now, expected)
    try:
        return bool(now == expected)
    except Exception:  # noqa: BLE001 - the equality of any class
        return False


def _same_float(now: float, expected: float) -> bool:
    if math.isnan(now):
        return math.isnan(expected)
    return now == expected and math.copysign(1, now) == math.copysign(1, expected)


def _same_array(now: Any, expected: Any) -> bool:
    if now.dtype != expected.dtype or now.shape != expected.shape:
        return False
    if now.dtype.hasobject:
        return bool((now == expected).all())
    same: bool = now.tobytes() == expected.tobytes()
    return same


def _is_integer(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return isinstance(value, (numpy.integer, numpy.bool_))


def _is_numpy(value: object) -> bool:
    # Nothing of ours needs numpy, and without it there is no such value.
    numpy: Any = sys.modules.get("numpy")
    kinds = (getattr(numpy, "generic", ()), getattr(numpy, "ndarray", ()))
    return isinstance(value, kinds)
