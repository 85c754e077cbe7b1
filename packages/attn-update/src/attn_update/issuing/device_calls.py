"""CANN's runtime functions around a launch, called from Python at addresses from the device.

This is the C interface of CANN 8 (acl/acl_rt.h). All except `create_event` return 0 for success.
Pass pointers as returned by `pointer`. The calls release the GIL, because a full stream may block.
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
    """Return a C function with any parameters that releases the GIL.

    ``result`` is the C type that it returns; a null ``c_void_p`` is None.

    Raises:
        ValueError: The device did not provide its address.
    """
    # Without types of parameters: arguments are C objects made ahead, and nothing is converted.
    return ctypes.CFUNCTYPE(result)(find_address(calls, name))


def find_address(calls: Mapping[str, int], name: str) -> int:
    """Return the address of a C function.

    Raises:
        ValueError: The device did not provide it.
    """
    address = calls.get(name, 0)
    if address == 0:
        raise ValueError(f"the device did not tell {name}")
    return address


def pointer(address: int) -> Any:
    """Return a pointer in the form that calls accept fastest."""
    return ctypes.c_void_p.from_param(address)


class DeviceCalls:
    """The functions that update task groups, set external events and order streams.

    Args:
        calls: The result of `attn_update.task_device.AddressedDevice.native_calls`.

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
            RuntimeError: The device rejected it.
        """
        event = ctypes.c_void_p()
        status = self._create_event(ctypes.byref(event), _SYNCHRONIZES_STREAMS)
        if status != 0:
            raise RuntimeError(f"aclrtCreateEventExWithFlag returned {status}")
        return event.value or 0

    def setting_external(self, event: int, stream: Any) -> tuple[Call, tuple[Any, ...]]:
        """Return the function that sets an external event, and its arguments.

        Args:
            event: Address of a word if the device can wait for a value, otherwise of an event.
            stream: The stream in whose order it is set; a pointer.
        """
        if self._write is None:
            return self.record_event, (pointer(event), stream)
        one, no_flag = ctypes.c_uint64.from_param(1), ctypes.c_uint32.from_param(0)
        return self._write, (pointer(event), one, no_flag, stream)


class AddressedEvent:
    """An event that is recorded once, when it is created, behind all that torch has queued.

    You may delete it while streams wait for it: CANN frees an event created for synchronisation
    only when its work is done, which torch_npu also relies on. ``stream`` is the address of the
    stream to record on.

    Raises:
        RuntimeError: The device rejected it.
    """

    __slots__ = ("_calls", "_event")

    def __init__(self, calls: DeviceCalls, stream: int) -> None:
        self._calls = calls
        self._event = pointer(calls.create_event())
        _check("aclrtRecordEvent", calls.record_event(self._event, pointer(stream)))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            self._calls.destroy_event(self._event)

    def wait(self, stream: int, /) -> None:
        """Make all later work of the stream at this address wait for the event.

        Raises:
            RuntimeError: The device rejected it.
        """
        _check("aclrtStreamWaitEvent", self._calls.wait_event(pointer(stream), self._event))


def _check(call: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{call} returned {status}")
