"""Defines where the static buffer of an input is."""

from __future__ import annotations

from enum import Enum


class InputPlace(Enum):
    """Where the model finds an input of a captured step.

    Attributes:
        DEVICE: in device memory, filled by the packed copy of the step. Values may be on the CPU or
            on the device.
        PINNED: in page-locked host memory, which the step itself copies to the device, inside its
            graphs or between them. Before writing it, the host waits for the previous step, which
            may still read it, so it cannot run ahead.
        CPU: in ordinary host memory, never copied. For host code that runs at each step: a function
            that runs eagerly, or a splitting op. A graph keeps the value that host code read at
            capture, as for any host number.
    """

    DEVICE = "device"
    PINNED = "pinned"
    CPU = "cpu"
