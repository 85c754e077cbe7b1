"""Where the static buffer of an input lies."""

from __future__ import annotations

from enum import Enum


class InputPlace(Enum):
    """Where the model finds an input of a captured step, and so who may read it.

    Attributes:
        DEVICE: in memory of the device, filled by the packed copy of the step. Values may come from
            the CPU or from the device.
        PINNED: in page-locked memory of the host, which the step itself copies to the device,
            inside its graphs or between them. The host waits for the step before, which may still
            read it, before it writes the next one: it cannot run ahead.
        CPU: in ordinary memory of the host, never copied. For code that runs on the host at each
            step: a function that runs eagerly, a splitting op. A graph holds what host code read of
            it at the capture, as it does with any number of the host.
    """

    DEVICE = "device"
    PINNED = "pinned"
    CPU = "cpu"
