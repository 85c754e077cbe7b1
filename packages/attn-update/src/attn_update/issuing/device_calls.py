"""The calls of CANN's runtime around a launch, from Python, at the addresses that the device gave.

The C interface of CANN 8 (acl/acl_rt.h). All but `create_event` return 0 for success; pointers are
given as what `pointer` makes of them. They release the interpreter lock: a full stream may block.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Call: TypeAlias = Callable[..., Any]

# ACL_EVENT_SYNC of acl/acl_rt.h.
_SYNCHRONIZES_STREAMS = ctypes.c_uint32(1)


def find_call(calls: Mapping[str, int], name: str, result: type = ctypes.c_int) -> Call:
    """Return a C function of any parameters, which releases the interpreter lock.

    Args:
        calls: From names to addresses.
        name: Of the function.
        result: The C type that it returns; a null ``c_void_p`` is None.

    Raises:
        ValueError: The device did not tell its address.
    """
    # Without types of parameters: arguments are C objects made ahead, and nothing is converted.
    return ctypes.CFUNCTYPE(result)(find_address(calls, name))


def find_address(calls: Mapping[str, int], name: str) -> int:
    """Return the address of a C function.

    Raises:
        ValueError: The device did not tell it.
    """
    address = calls.get(name, 0)
    if address == 0:
        raise ValueError(f"the device did not tell {name}")
    return address


def pointer(address: int) -> Any:
    """Return a pointer in the form in which calls take it fastest."""
    return ctypes.c_void_p.from_param(address)


class DeviceCalls:
    """The calls that update task groups, set external events and order streams.

    Args:
        calls: What `attn_update.task_device.AddressedDevice.native_calls` returned.

    Attributes:
        begin: ``(stream, group)``; begins a task update.
        end: ``(stream,)``; ends it.
        record_event: ``(event, stream)``.
        wait_event: ``(stream, event)``.
        destroy_event: ``(event,)``.
    """

    def __init__(self, calls: Mapping[str, int]) -> None:
        self.begin = find_call(calls, "aclmdlRICaptureTaskUpdateBegin")
        self.end = find_call(calls, "aclmdlRICaptureTaskUpdateEnd")
        self.record_event = find_call(calls, "aclrtRecordEvent")
        self.wait_event = find_call(calls, "aclrtStreamWaitEvent")
        self.destroy_event = find_call(calls, "aclrtDestroyEvent")
        self._create_event = find_call(calls, "aclrtCreateEventExWithFlag")
        has_words = bool(calls.get("aclrtValueWrite"))
        self._write = find_call(calls, "aclrtValueWrite") if has_words else None

    def create_event(self) -> int:
        """Return the address of a new event that orders streams.

        Raises:
            RuntimeError: The device refused.
        """
        event = ctypes.c_void_p()
        status = self._create_event(ctypes.byref(event), _SYNCHRONIZES_STREAMS)
        if status != 0:
            raise RuntimeError(f"aclrtCreateEventExWithFlag returned {status}")
        return event.value or 0

    def setting_external(self, event: int, stream: Any) -> tuple[Call, tuple[Any, ...]]:
        """Return the call that sets an external event, and its arguments.

        Args:
            event: Its address: a word where the device can wait for a value, else an event.
            stream: In the order of which it is set; a pointer.
        """
        if self._write is None:
            return self.record_event, (pointer(event), stream)
        one, no_flag = ctypes.c_uint64.from_param(1), ctypes.c_uint32.from_param(0)
        return self._write, (pointer(event), one, no_flag, stream)
