"""The values of a kernel's parameters, in the form that ctypes passes fastest.

A value that never changes is a ctypes argument object, created once. A value that steps replace is
a variable shared by all launches of a slot, so that setting it changes all of them at once.
"""

from __future__ import annotations

import ctypes
from array import array
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attn_update.issuing.kernels.kernel_signature import ParameterType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.issuing.kernels.kernel_library import KernelLibrary, KernelObject
    from attn_update.issuing.kernels.kernel_signature import KernelParameter

PLAIN_TYPES: Mapping[ParameterType, Any] = MappingProxyType(
    {
        ParameterType.INTEGER: ctypes.c_int64,
        ParameterType.FLOAT: ctypes.c_double,
        ParameterType.BOOLEAN: ctypes.c_bool,
        ParameterType.TEXT: ctypes.c_char_p,
    }
)


class KernelVariable:
    """A value that steps replace, for all launches that use its argument.

    Attributes:
        argument: The argument for calls; each call reads the current value.
    """

    __slots__ = ("_library", "_made", "_parameter", "argument")

    def __init__(self, parameter: KernelParameter, library: KernelLibrary) -> None:
        self._parameter = parameter
        self._library = library
        self._made: KernelObject | None = None
        self.argument = PLAIN_TYPES.get(parameter.type, ctypes.c_void_p)()

    def set(self, value: object) -> None:
        """Replace the value. Earlier calls no longer need the old one.

        Raises:
            ValueError: The value is invalid for the parameter; the old one stays.
        """
        if self._parameter.type in PLAIN_TYPES:
            self.argument.value = plain_value(self._parameter, value)
            return
        made = None if value is None else self._library.make(self._parameter, value)
        self.argument.value = None if made is None else made.address
        self._made = made


def plain_value(parameter: KernelParameter, value: Any) -> object:
    """Return a checked value for ctypes, which would truncate integers and accept any boolean."""
    try:
        if parameter.type is ParameterType.INTEGER:
            (integer,) = array("q", [value])
            return integer
        if parameter.type is ParameterType.FLOAT:
            return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise parameter.misfit(value) from error
    if parameter.type is ParameterType.TEXT and isinstance(value, str):
        return value.encode()
    if parameter.type is ParameterType.BOOLEAN and isinstance(value, bool):
        return value
    raise parameter.misfit(value)


def absent_value(parameter: KernelParameter) -> Any:
    """Return the argument for a parameter for which the operator has no argument."""
    plain = PLAIN_TYPES.get(parameter.type)
    return None if plain is None else plain.from_param(plain().value)
