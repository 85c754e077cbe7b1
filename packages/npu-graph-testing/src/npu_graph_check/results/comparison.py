"""Compares two files of results."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from npu_graph_check.register.register import row_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_check.results.probe_result import ProbeResult
    from npu_graph_check.results.result_file import Results

_ABSENT = "(not there)"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One difference between two files.

    Attributes:
        where: name of a fact of the environment, or id of a probe.
        what: the part of it; empty for the fact itself.
        rows: rows of docs/fidelity.md that the probe tests, by their ids.
    """

    where: str
    what: str
    first: Any
    second: Any
    rows: dict[str, str]

    def __str__(self) -> str:
        what = f", {self.what}" if self.what else ""
        lines = [f"{self.where}{what}: {self.first!r} | {self.second!r}"]
        lines += [f"    {row}: {words}" for row, words in self.rows.items()]
        return "\n".join(lines)


def compare_results(first: Results, second: Results) -> list[Difference]:
    """Return where two results differ, in the order of the first; times of probes are left out."""
    found = [
        Difference(where=name, what="", first=one, second=other, rows={})
        for name, one, other in _pairs(first.environment, second.environment)
    ]
    ours, theirs = ({each.id: each for each in results.probes} for results in (first, second))
    for name in {**ours, **theirs}:
        rows = (ours.get(name) or theirs[name]).rows
        if name not in ours or name not in theirs:
            a, b = (each[name].verdict if name in each else _ABSENT for each in (ours, theirs))
            found.append(Difference(where=name, what="", first=a, second=b, rows=row_words(rows)))
            continue
        one, other = _parts(ours[name]), _parts(theirs[name])
        found += [
            Difference(where=name, what=what, first=a, second=b, rows=row_words(rows))
            for what, a, b in _pairs(one, other)
        ]
    return found


def _pairs(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in {**one, **other}:
        a, b = one.get(name, _ABSENT), other.get(name, _ABSENT)
        # As text: in Python True equals 1.
        if json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True):
            yield name, a, b


def _parts(result: ProbeResult) -> dict[str, Any]:
    """Return the compared parts of a result, each under a unique name."""
    parts: dict[str, Any] = {"verdict": result.verdict, "because": result.because}
    seen: list[tuple[str, Any]] = [(each.what, each.seen) for each in result.observations]
    seen += [
        (f"{each.name} in {each.unit}" if each.unit else each.name, each.value)
        for each in result.figures
    ]
    for name, value in seen:
        number, unique = 1, name
        while unique in parts:
            number, unique = number + 1, f"{name} ({number + 1})"
        parts[unique] = value
    return parts
