"""Events after replays, recorded and waited for from Python past torch's launch queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.issuing.device_calls import DeviceCalls, pointer

if TYPE_CHECKING:
    from collections.abc import Mapping


class AddressedEvent:
    """An event, recorded once, when it is made.

    It may be dropped while streams wait for it: CANN frees an event created for synchronisation
    only when its work is over, which torch_npu relies on for its own.

    Args:
        calls: Of the device.
        stream: The address of the stream that it is recorded on.

    Raises:
        RuntimeError: The device refused.
    """

    __slots__ = ("_calls", "_event")

    def __init__(self, calls: DeviceCalls, stream: int) -> None:
        self._calls = calls
        self._event = pointer(calls.create_event())
        _check("aclrtRecordEvent", calls.record_event(self._event, pointer(stream)))

    def __del__(self) -> None:
        """Give the event back."""
        if hasattr(self, "_event"):
            self._calls.destroy_event(self._event)

    def wait(self, stream: int, /) -> None:
        """Let all later work of the stream with this address wait for it, at once.

        Raises:
            RuntimeError: The device refused.
        """
        _check("aclrtStreamWaitEvent", self._calls.wait_event(pointer(stream), self._event))


class AddressedEvents:
    """Makes them on one device.

    Args:
        calls: What `AddressedDevice.native_calls` returned.
    """

    def __init__(self, calls: Mapping[str, int]) -> None:
        self._calls = DeviceCalls(calls)

    def record(self, stream: int, /) -> AddressedEvent:
        """Return a new event, recorded on a stream; what torch queued for it is handed over.

        Raises:
            RuntimeError: The device refused.
        """
        return AddressedEvent(self._calls, stream)


def _check(call: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{call} returned {status}")
