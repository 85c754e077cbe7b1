"""Counters of the simulated device."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING

from cann_sim.simulated_device.runtime_library import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Counters:
    """The device's activity since the process began, or between two readings.

    Attributes:
        launches: Kernels launched outside captures and task updates.
        captured_launches: Kernels recorded into graphs.
        updated_launches: Kernels that replaced a task of a task group.
        task_updates: Successful task updates.
        captures: Captures that ended with a graph.
        replays: Requested replays.
        replayed_kernels: Kernels that have run inside replays.
        synchronisations: Calls that made the host wait for a stream, an event or the device.
        copies: Memory copies, including captured ones.
        blocking_copies: Those of them that made the host wait.
        copied_bytes: Bytes of all of them.
        collectives: Collectives, sends and receives that began to run, including those in replays.
        collective_bytes: Bytes that they read from this process's memory.
        launches_by_operator: Kernels of the first three counts, by aclnn name.
    """

    launches: int = 0
    captured_launches: int = 0
    updated_launches: int = 0
    task_updates: int = 0
    captures: int = 0
    replays: int = 0
    replayed_kernels: int = 0
    synchronisations: int = 0
    copies: int = 0
    blocking_copies: int = 0
    copied_bytes: int = 0
    collectives: int = 0
    collective_bytes: int = 0
    launches_by_operator: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __sub__(self, earlier: Counters) -> Counters:
        """Return the difference from an earlier reading."""
        difference = Counter(self.launches_by_operator)
        difference.subtract(earlier.launches_by_operator)
        operators = {name: count for name, count in sorted(difference.items()) if count}
        numbers = {name: getattr(self, name) - getattr(earlier, name) for name in _NUMBERS}
        return Counters(**numbers, launches_by_operator=MappingProxyType(operators))


_NUMBERS = tuple(f.name for f in fields(Counters) if f.name != "launches_by_operator")


def counters() -> Counters:
    """Return the counters as they are now.

    With ``TASK_QUEUE_ENABLE=1``, torch_npu's default, launches arrive from a second thread:
    synchronise first where the figure has to be exact.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    values = json.loads(read_text("cann_sim_counters", "for its counters"))
    operators = MappingProxyType(values.pop("launches_by_operator"))
    return Counters(**values, launches_by_operator=operators)
