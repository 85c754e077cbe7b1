"""The result of one probe."""

from __future__ import annotations

import dataclasses
from typing import Any

CONFIRMED, OTHERWISE, ANSWERED, NOT_TRIED = "confirmed", "otherwise", "answered", "not tried"
VERDICTS = (CONFIRMED, OTHERWISE, ANSWERED, NOT_TRIED)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """An observed and an expected value; plain JSON data."""

    what: str
    seen: Any
    expected: Any
    agrees: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A measured value, or the answer to a question, which has no unit."""

    name: str
    value: Any
    unit: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """The verdict of one probe, and its observations.

    Attributes:
        id: id of the probe.
        title: the assumption.
        rows: rows of docs/fidelity.md that it tests.
        verdict: one of `VERDICTS`.
        because: why it was not tried, or how it ended; empty if the observations are sufficient.
        observations: observations in order.
        figures: figures in order.
        seconds: duration of the process.
    """

    id: str
    title: str
    rows: tuple[str, ...]
    verdict: str
    because: str = ""
    observations: tuple[Observation, ...] = ()
    figures: tuple[Figure, ...] = ()
    seconds: float = 0.0

    @property
    def group(self) -> str:
        """Return the group of the probe."""
        return self.id.partition(".")[0]

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> ProbeResult:
        """Create a result from the output of `dataclasses.asdict`.

        Raises:
            TypeError, KeyError, ValueError: The mapping has another form.
        """
        if mapping["verdict"] not in VERDICTS:
            raise ValueError(f"verdict {mapping['verdict']!r}")
        return cls(
            **{
                **mapping,
                "rows": tuple(mapping["rows"]),
                "observations": tuple(Observation(**each) for each in mapping["observations"]),
                "figures": tuple(Figure(**each) for each in mapping["figures"]),
            }
        )
