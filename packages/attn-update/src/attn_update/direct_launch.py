"""The seam to a device that can launch on the calling thread, past its launch queue.

torch_npu hands launches to the device on a second thread (``TASK_QUEUE_ENABLE=1``, its default).
Beginning and ending a task update must then wait for that thread to catch up, twice for each layer,
which costs more than the update; and a launch that the operator refuses fails later, where nobody
knows which layer it was for. A stream without the queue has neither problem, but it must not wait
for an event whose recording still stands in the queue: so the queue is flushed once a step, as the
replay would have to anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from attn_update.task_device import Stream, TaskDevice


@runtime_checkable
class DirectLaunchDevice(Protocol):
    """A device that has streams without a launch queue."""

    def create_direct_stream(self) -> Stream:
        """Return a stream whose launches reach the device before the call returns."""

    def flush_launches(self) -> None:
        """Return when all that this thread queued has been handed to the device, not run by it."""


def find_direct_launch(device: TaskDevice) -> DirectLaunchDevice | None:
    """Return the device if it can launch directly, else None."""
    return device if isinstance(device, DirectLaunchDevice) else None
