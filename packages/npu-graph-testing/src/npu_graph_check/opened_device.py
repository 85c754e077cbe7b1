"""The device of a probe that works with torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_graph_runtime import CudaDevice, NpuDevice

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def open_device(look: Look) -> NpuDevice | CudaDevice:
    """Return device 0 of the kind that is looked at.

    Raises:
        DeviceUnavailableError: there is none.
    """
    look.doing("opening the device")
    return CudaDevice() if look.device == "cuda" else NpuDevice()
