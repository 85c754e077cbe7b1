"""The operators that a program used: launches, rejected calls, and missing operators."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cann_sim.simulated_device.runtime_library import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

UNKNOWN_OPERATOR = "unknown (asked from the task queue)"
"""Stands for a torch operator that could not be found out; ``TASK_QUEUE_ENABLE=0`` shows it."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that an operator refused.

    Attributes:
        operator: aclnn name.
        reason: What was expected and found.
        asked_by: The torch operator that made the call, or `UNKNOWN_OPERATOR`.
    """

    operator: str
    reason: str
    asked_by: str


@dataclass(frozen=True, kw_only=True)
class MissingOperator:
    """An operator that is not simulated.

    Attributes:
        operator: aclnn name, or the name of an operator that torch_npu wanted compiled.
        asked_by: The torch operator that needs it, or `UNKNOWN_OPERATOR`.
    """

    operator: str
    asked_by: str


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The operators used by one process or several.

    Attributes:
        launches: Launches of simulated operators: by name, then by the dtypes of their
            tensors as in ``"bfloat16 float32"``.
        refused: Rejected calls, with their count.
        missing: Operators that are not simulated, with the number of calls.
    """

    launches: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    refused: Mapping[Refusal, int] = field(default_factory=lambda: MappingProxyType({}))
    missing: Mapping[MissingOperator, int] = field(default_factory=lambda: MappingProxyType({}))

    def report(self) -> str:
        """Return the coverage as text: missing operators, rejected calls, launches."""
        lines = [f"{sum(self.missing.values())} calls of operators that are not simulated"]
        lines += [
            f"  {count:7} {missing.operator}, needed by {missing.asked_by}"
            for missing, count in _by_count(self.missing)
        ]
        lines.append(f"{sum(self.refused.values())} refused calls")
        lines += [
            f"  {count:7} {refusal.operator}, called by {refusal.asked_by}: {refusal.reason}"
            for refusal, count in _by_count(self.refused)
        ]
        ran = {name: sum(dtypes.values()) for name, dtypes in self.launches.items()}
        lines.append(f"{sum(ran.values())} launches of {len(ran)} operators")
        for name, count in _by_count(ran):
            each = ", ".join(f"{dtypes} {n}" for dtypes, n in _by_count(self.launches[name]))
            lines.append(f"  {count:7} {name}: {each}")
        return "\n".join(lines) + "\n"


def coverage() -> Coverage:
    """Return the operators that this process has used so far.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    text = read_text("cann_sim_coverage", "for its coverage", library="libopapi.so")
    return _merged([json.loads(text)])


def read_coverage(file: Path) -> Coverage:
    """Return the operators used by finished or running processes with ``CANN_SIM_COVERAGE=<file>``.

    Args:
        file: The file. Each process writes its counts there continuously, so those of a killed
            process are complete.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line was not written by a process.
    """
    try:
        return _merged(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"reading the coverage in {file}: expected a JSON object of counts in each line, "
            f"found {error!r}; give a file that CANN_SIM_COVERAGE named"
        ) from error


def _merged(processes: Iterable[dict[str, Any]]) -> Coverage:
    launches: dict[str, Counter[str]] = {}
    refused: Counter[Refusal] = Counter()
    missing: Counter[MissingOperator] = Counter()
    for process in processes:
        for name, dtypes, count in process["launches"]:
            launches.setdefault(name, Counter())[dtypes or "no tensors"] += count
        for name, reason, asked_by, count in process["refused"]:
            by = asked_by or UNKNOWN_OPERATOR
            refused[Refusal(operator=name, reason=reason, asked_by=by)] += count
        for name, asked_by, count in process["missing"]:
            missing[MissingOperator(operator=name, asked_by=asked_by or UNKNOWN_OPERATOR)] += count
    return Coverage(
        launches=MappingProxyType(
            {name: MappingProxyType(dict(each)) for name, each in sorted(launches.items())}
        ),
        refused=MappingProxyType(dict(refused)),
        missing=MappingProxyType(dict(missing)),
    )


def _by_count(counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
