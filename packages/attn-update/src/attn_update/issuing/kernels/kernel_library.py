"""What CANN's kernels accept, created and owned from Python in the form that ctypes passes fastest.

A value that never changes is a ctypes argument object, created once. A value that steps replace is
a variable shared by all launches of a slot, so that setting it changes all of them at once.
"""

from __future__ import annotations

import ctypes
from array import array
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from attn_update.issuing.device_calls import find_call, pointer
from attn_update.issuing.kernels.kernel_signature import ParameterType
from attn_update.torch_internals import implementation_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.issuing.device_calls import Call
    from attn_update.issuing.kernels.kernel_signature import KernelParameter

LIBRARY_FUNCTIONS = (
    "aclDestroyTensor",
    "aclCreateTensorList",
    "aclDestroyTensorList",
    "aclCreateIntArray",
    "aclDestroyIntArray",
    "aclDestroyAclOpExecutor",
    "aclGetRecentErrMsg",
)
"""What a `KernelLibrary` calls beside ``describe_tensor``, see `AddressedDevice`."""


_OUTPUTS = (ParameterType.FIRST_OUTPUT, ParameterType.SECOND_OUTPUT)
_OTHER_DEVICES = frozenset({"cpu", "meta"})
# Those of both torch and aclDataType (acl/acl_base.h).
_DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    }
)


class KernelObject:
    """A CANN object that is destroyed with this Python object.

    Attributes:
        address: Address of the CANN object.
    """

    __slots__ = ("_argument", "_destroy", "address")

    def __init__(self, address: int, destroy: Call) -> None:
        self.address = address
        self._argument = pointer(address)
        self._destroy = destroy

    def __del__(self) -> None:
        # An interrupt may come in the middle of `__init__`.
        if hasattr(self, "_destroy"):
            self._destroy(self._argument)


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


class KernelLibrary:
    """Creates objects, and keeps those of constant values alive.

    Args:
        calls: The result of `AddressedDevice.kernel_calls` for `LIBRARY_FUNCTIONS`.

    Attributes:
        destroy_executor: Destroys the result of a first phase that no second phase consumed.

    Raises:
        ValueError: The device did not provide one of the functions.
    """

    def __init__(self, calls: Mapping[str, int]) -> None:
        self.destroy_executor = find_call(calls, "aclDestroyAclOpExecutor")
        self._describe = find_call(calls, "describe_tensor", ctypes.c_void_p)
        self._destroy_tensor = find_call(calls, "aclDestroyTensor")
        self._make_list = find_call(calls, "aclCreateTensorList", ctypes.c_void_p)
        self._destroy_list = find_call(calls, "aclDestroyTensorList")
        self._make_integers = find_call(calls, "aclCreateIntArray", ctypes.c_void_p)
        self._destroy_integers = find_call(calls, "aclDestroyIntArray")
        self._recent_message = find_call(calls, "aclGetRecentErrMsg", ctypes.c_char_p)
        # With the value itself, so that its identity stays its own. Layers share their mask.
        self._constants: dict[tuple[int, ParameterType], tuple[object, KernelObject]] = {}

    def constant(self, parameter: KernelParameter, value: object) -> Any:
        """Return the argument for a constant value; None if nothing is passed for the parameter.

        Raises:
            ValueError: The value is invalid for the parameter.
        """
        plain = PLAIN_TYPES.get(parameter.type)
        if plain is not None:
            return plain.from_param(plain_value(parameter, value))
        if value is None:
            return None
        known = self._constants.get((id(value), parameter.type))
        if known is None:
            known = value, self.make(parameter, value)
            self._constants[id(value), parameter.type] = known
        return pointer(known[1].address)

    def make(self, parameter: KernelParameter, value: Any) -> KernelObject:
        """Return a new CANN object, which the caller keeps alive as long as calls use it.

        It keeps no tensor alive, and copies integers.

        Raises:
            ValueError: The value is invalid for the parameter.
        """
        try:
            if parameter.type is ParameterType.INTEGERS:
                copied = array("q", value)
                address, count = copied.buffer_info()
                made = self._make_integers(pointer(address), ctypes.c_uint64(count))
                return KernelObject(_made(made, "an array of integers"), self._destroy_integers)
            is_output = parameter.type in _OUTPUTS
            tensor = value[_OUTPUTS.index(parameter.type)] if is_output else value
            described = self._describe_tensor(tensor)
        except (TypeError, IndexError, OverflowError) as error:
            raise parameter.misfit(value) from error
        if parameter.type is not ParameterType.TENSOR_LIST:
            return KernelObject(described, self._destroy_tensor)
        # It destroys the tensor with itself.
        made = self._make_list(ctypes.byref(ctypes.c_void_p(described)), ctypes.c_uint64(1))
        return KernelObject(_made(made, "a list of tensors"), self._destroy_list)

    def recent_message(self) -> str:
        """Return CANN's message on the latest failure of this thread; empty if there is none."""
        message: bytes | None = self._recent_message()
        return (message or b"").decode(errors="replace")

    def _describe_tensor(self, tensor: object) -> int:
        # What torch_npu cannot describe would end the process: C++ errors do not pass through here.
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.layout is not torch.strided
            or tensor.device.type in _OTHER_DEVICES
            or tensor.dtype not in _DTYPES
        ):
            raise TypeError("expected a dense tensor of the device, of a data type that CANN has")
        # To C++ a tensor is one pointer to its implementation, and a reference a pointer to that.
        implementation = ctypes.c_void_p(implementation_address(tensor))
        return _made(self._describe(ctypes.byref(implementation)), "a tensor")


def _made(address: int | None, what: str) -> int:
    if not address:
        raise RuntimeError(f"CANN could not make {what}")
    return address
