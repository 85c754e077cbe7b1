"""The seam to a device whose calls native code can make itself.

What crosses it are addresses of public C functions of CANN and of the objects they take, so neither
side needs the headers or libraries of torch_npu. They are only right for a stream that launches
directly: past a launch queue they would overtake what stands in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.task_device import ExternalEvent, Stream, TaskDevice


@runtime_checkable
class NativeUpdateDevice(Protocol):
    """A device that tells the addresses of its calls and objects."""

    def native_calls(self) -> Mapping[str, int]:
        """Return the addresses of the functions that update task groups and set external events.

        Returns:
            From the names of C functions (acl/acl_rt.h of CANN 8) to addresses:
            ``aclmdlRICaptureTaskUpdateBegin``, ``aclmdlRICaptureTaskUpdateEnd``, and the one that
            sets an external event, ``aclrtValueWrite`` or ``aclrtRecordEvent``. Empty if the
            device's libraries lack one.
        """

    def stream_address(self, stream: Stream) -> int:
        """Return the address of a stream, valid as long as the stream."""

    def task_group_address(self, handle: object) -> int:
        """Return the address of a task group, valid as long as its graph."""

    def external_event_address(self, event: ExternalEvent) -> int:
        """Return the address that sets the external event, valid as long as the event."""


def find_native_calls(device: TaskDevice) -> tuple[NativeUpdateDevice, Mapping[str, int]] | None:
    """Return the device and its calls if it can be driven natively, else None."""
    if not isinstance(device, NativeUpdateDevice):
        return None
    calls = device.native_calls()
    return (device, calls) if calls else None
