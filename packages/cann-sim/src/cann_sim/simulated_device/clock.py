"""The virtual clock of the simulated device, where ``CANN_SIM_CLOCK`` is set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cann_sim.errors import SettingError
from cann_sim.simulated_device.runtime_library import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_NANOSECONDS_OF_MICROSECOND = 1000.0


@dataclass(frozen=True, kw_only=True)
class ClockConstant:
    """One constant of the virtual clock.

    Attributes:
        value: Value in ``unit``.
        unit: ``ns``, ``bytes``, ``bytes/s`` or ``operations/s``.
        origin: ``documented`` by CANN, ``published`` directly by somebody who measured it,
            ``fitted`` to published figures, or ``assumed``.
        source: Its source.
    """

    value: float
    unit: str
    origin: str
    source: str


def clock_constants() -> Mapping[str, ClockConstant]:
    """Return the constants of the virtual clock by name, those of an Ascend 910B.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    rows = json.loads(read_text("cann_sim_clock_constants", "for the constants of its clock"))
    return MappingProxyType({row.pop("name"): ClockConstant(**row) for row in rows})


def virtual_time() -> float:
    """Return the virtual time of the host in microseconds since the process began.

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The process has no virtual clock.
    """
    text = read_text("cann_sim_virtual_time", "for its virtual time")
    if not text:
        raise SettingError(
            "asking the simulated device for its virtual time: expected CANN_SIM_CLOCK to be set "
            "when the process begins, found that it is not. Set it to given or measured"
        )
    return int(text) / _NANOSECONDS_OF_MICROSECOND
