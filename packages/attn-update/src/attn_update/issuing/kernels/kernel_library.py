"""Objects that CANN's kernels accept, created and owned from Python."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING, Any

import torch

from attn_update.issuing.device_calls import find_call, pointer
from attn_update.issuing.kernels.kernel_signature import ParameterType
from attn_update.issuing.kernels.kernel_values import PLAIN_TYPES, plain_value
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
