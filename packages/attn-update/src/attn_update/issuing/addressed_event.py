"""Events after replays, recorded and waited for from Python without torch's launch queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.issuing.device_calls import pointer

if TYPE_CHECKING:
    from attn_update.issuing.device_calls import DeviceCalls


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
