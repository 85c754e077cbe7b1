"""The values of a kernel's parameters, in the form that ctypes passes fastest.

A value that never changes is a ctypes argument object, created once. A value that steps replace is
a variable shared by all launches of a slot, so that setting it changes all of them at once.
"""

from __future__ import annotations

import ctypes
from array import array
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attn_update.issuing.device_calls import pointer
from attn_update.issuing.kernels.kernel_signature import ParameterType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.issuing.kernels.kernel_library import KernelLibrary, KernelObject
    from attn_update.issuing.kernels.kernel_signature import KernelParameter

_PLAIN_TYPES: Mapping[ParameterType, Any] = MappingProxyType(
    {
        ParameterType.INTEGER: ctypes.c_int64,
        ParameterType.FLOAT: ctypes.c_double,
        ParameterType.BOOLEAN: ctypes.c_bool,
        ParameterType.TEXT: ctypes.c_char_p,
    }
)
_OUTPUTS = (ParameterType.FIRST_OUTPUT, ParameterType.SECOND_OUTPUT)


class KernelValues:
    """Creates values of parameters, and keeps the constant ones alive."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library
        self._kept: list[KernelObject] = []
        # With the tensor itself, so that its identity stays its own. Layers share their mask.
        self._tensors: dict[tuple[int, ParameterType], tuple[object, KernelObject]] = {}

    def constant(self, parameter: KernelParameter, value: object) -> Any:
        """Return the argument for a constant value; None if nothing is passed for the parameter.

        Raises:
            ValueError: The value is invalid for the parameter.
        """
        plain = _PLAIN_TYPES.get(parameter.type)
        if plain is not None:
            return plain.from_param(_plain_value(parameter, value))
        if value is None:
            return None
        if parameter.type not in (ParameterType.TENSOR, ParameterType.TENSOR_LIST):
            self._kept.append(self.make(parameter, value))
            return pointer(self._kept[-1].address)
        known = self._tensors.get((id(value), parameter.type))
        if known is None:
            known = self._tensors[id(value), parameter.type] = value, self.make(parameter, value)
        return pointer(known[1].address)

    def absent(self, parameter: KernelParameter) -> Any:
        """Return the argument for a parameter for which the operator has no argument."""
        plain = _PLAIN_TYPES.get(parameter.type)
        return None if plain is None else plain.from_param(plain().value)

    def make(self, parameter: KernelParameter, value: Any) -> KernelObject:
        """Return a new CANN object, which the caller keeps alive as long as calls use it.

        Raises:
            ValueError: The value is invalid for the parameter.
        """
        try:
            if parameter.type is ParameterType.INTEGERS:
                return self._library.integers(value)
            if parameter.type is ParameterType.TENSOR_LIST:
                return self._library.tensor_list(value)
            if parameter.type is ParameterType.TENSOR:
                return self._library.tensor(value)
            return self._library.tensor(value[_OUTPUTS.index(parameter.type)])
        except (TypeError, IndexError, OverflowError) as error:
            raise _misfit(parameter, value) from error


class KernelVariable:
    """A value that steps replace, for all launches that use its argument.

    Attributes:
        argument: The argument for calls; each call reads the current value.
    """

    __slots__ = ("_made", "_parameter", "_values", "argument")

    def __init__(self, parameter: KernelParameter, values: KernelValues) -> None:
        self._parameter = parameter
        self._values = values
        self._made: KernelObject | None = None
        self.argument = _PLAIN_TYPES.get(parameter.type, ctypes.c_void_p)()

    def set(self, value: object) -> None:
        """Replace the value. Earlier calls no longer need the old one.

        Raises:
            ValueError: The value is invalid for the parameter; the old one stays.
        """
        if self._parameter.type in _PLAIN_TYPES:
            self.argument.value = _plain_value(self._parameter, value)
            return
        made = None if value is None else self._values.make(self._parameter, value)
        self.argument.value = None if made is None else made.address
        self._made = made


def _plain_value(parameter: KernelParameter, value: Any) -> object:
    """Return a checked value for ctypes, which would truncate integers and accept any boolean."""
    try:
        if parameter.type is ParameterType.INTEGER:
            (integer,) = array("q", [value])
            return integer
        if parameter.type is ParameterType.FLOAT:
            return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _misfit(parameter, value) from error
    if parameter.type is ParameterType.TEXT and isinstance(value, str):
        return value.encode()
    if parameter.type is ParameterType.BOOLEAN and isinstance(value, bool):
        return value
    raise _misfit(parameter, value)


def _misfit(parameter: KernelParameter, value: object) -> ValueError:
    takes = parameter.type.name.lower().replace("_", " ")
    return ValueError(f"argument {parameter.argument!r} takes {takes}, found {type(value)}")
