"""Unset the external events of a plan from outside its graph, whether they are set or not."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from attn_update.issuing.device_calls import find_call, pointer
from attn_update.task_device import find_native_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.planning.update_plan import PlannedUpdate
    from attn_update.task_device import Stream, TaskDevice


def unset_events(device: TaskDevice, stream: Stream, updates: Sequence[PlannedUpdate]) -> None:
    """Unset the events in the order of a stream; no replay of their graph may be under way.

    torch_npu's events that are words of memory can be waited for once only, in the capture. So
    where the device tells its calls the words are written; elsewhere each event is set and waited
    for, which leaves it unset.

    Args:
        device: Of the events.
        stream: In the order of which they are unset.
        updates: With the events.

    Raises:
        RuntimeError: The device refused.
    """
    found = find_native_calls(device)
    if found is None or "aclrtValueWrite" not in found[1]:
        for update in updates:
            update.event.record(stream)
            update.event.wait(stream)
            update.event.reset(stream)
        return
    addressed, calls = found
    write = find_call(calls, "aclrtValueWrite")
    zero, no_flag = ctypes.c_uint64.from_param(0), ctypes.c_uint32.from_param(0)
    address = pointer(addressed.stream_address(stream))
    for update in updates:
        event = pointer(addressed.external_event_address(update.event))
        status = write(event, zero, no_flag, address)
        if status != 0:
            raise RuntimeError(
                f"unsetting the event of layer {update.layer_name!r}: aclrtValueWrite returned "
                f"{status}",
            )
