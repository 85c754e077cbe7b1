"""What one probe found."""

from __future__ import annotations

import dataclasses
from typing import Any

CONFIRMED, OTHERWISE, ANSWERED, NOT_TRIED = "confirmed", "otherwise", "answered", "not tried"
VERDICTS = (CONFIRMED, OTHERWISE, ANSWERED, NOT_TRIED)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What was seen, beside what was expected; plain data of JSON."""

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
    """The verdict of one probe, and what it rests on.

    Attributes:
        id: of the probe.
        title: the claim.
        rows: rows of docs/fidelity.md that it observes.
        verdict: one of `VERDICTS`.
        because: why it was not tried, or how it ended; empty where the observations say all.
        observations: in the order in which they were made.
        figures: likewise.
        seconds: how long the process ran.
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
        """Read what `dataclasses.asdict` of a result gives.

        Raises:
            TypeError, KeyError, ValueError: it is of another form.
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
