"""Waits for a device for a limited time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npu_graph_runtime.errors import DeviceTimeoutError, GraphRuntimeError
from npu_graph_runtime.failures.diagnosis import diagnose

if TYPE_CHECKING:
    from npu_graph_runtime.device import GraphDevice


def wait_for_device(
    device: GraphDevice, *, seconds: float, subject: str
) -> GraphRuntimeError | None:
    """Block the host until all streams of the device are done, and return what went wrong.

    A separate thread waits, because waiting for a hung device does not end; in that case the thread
    remains.

    Returns:
        ``None`` if all went well, a `DeviceTimeoutError` if the time was not enough, or the error
        that the device reported.
    """
    errors: list[BaseException] = []

    def wait() -> None:
        bind = getattr(device, "bind_thread", None)
        try:
            if bind is not None:
                bind()
            device.synchronize()
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=wait, name="wait_for_device", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return DeviceTimeoutError(
            f"waiting for {subject}: {device.name} is not done after {seconds:g} s, expected it "
            "within that time; look for an external event that is not recorded, or a collective "
            "that other ranks do not come to"
        )
    if not errors:
        return None
    error = errors[0]
    if isinstance(error, GraphRuntimeError):
        return error
    found = diagnose(error, doing="waiting for", subject=subject)
    found.__cause__ = error
    return found
