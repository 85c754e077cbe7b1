"""Which issuer an update lane has, by what its device offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.addressed_device import find_native_calls
from attn_update.addressed_issuer import AddressedIssuer
from attn_update.direct_launch import find_direct_launch
from attn_update.operator_issuer import OperatorIssuer

if TYPE_CHECKING:
    from attn_update.lane_counters import LaneCounters
    from attn_update.step_issuer import StepIssuer
    from attn_update.task_device import TaskDevice
    from attn_update.updater import Updater


def make_issuer(
    device: TaskDevice, counters: LaneCounters, *, direct: bool, updater: Updater | None
) -> tuple[StepIssuer, str | None]:
    """Return an issuer on a new stream of a device, and why the updater is not used, if so.

    Args:
        device: Of the stream.
        counters: Are counted up.
        direct: Whether the stream shall launch past the device's launch queue, where it can.
        updater: Issues all updates of a step at once, where the device allows that; None for none.
    """
    direct_device = find_direct_launch(device) if direct else None
    if direct_device is None:
        # A graph that waits for its first update idles the device, so the lane goes first.
        stream = device.create_stream(priority=-1)
    else:
        stream = direct_device.create_direct_stream()
    found = find_native_calls(device)
    if updater is None:
        reason = "the lane was made without an updater"
    elif direct_device is None:
        reason = "the lane's stream does not launch directly"
    elif found is None:
        reason = "the device does not tell the addresses of its calls"
    else:
        addressed, calls = found
        issuer = AddressedIssuer(
            device,
            stream,
            counters,
            direct_device,
            addressed=addressed,
            calls=calls,
            updater=updater,
        )
        return issuer, None
    return OperatorIssuer(device, stream, counters, direct_device), reason
