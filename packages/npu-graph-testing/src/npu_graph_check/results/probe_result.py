"""The result of one probe."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        rows: rows of docs/fidelity.md that it tests.
        verdict: one of `VERDICTS`.
        because: why it was not tried, or how it ended; empty if the observations are sufficient.
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
        result = cls(
            **{
                **mapping,
                "rows": tuple(mapping["rows"]),
                "observations": tuple(Observation(**each) for each in mapping["observations"]),
                "figures": tuple(Figure(**each) for each in mapping["figures"]),
            }
        )
        parts: list[ProbeResult | Observation | Figure] = [result]
        parts += [*result.observations, *result.figures]
        for part in parts:
            _check_types(part)
        for row in result.rows:
            if not isinstance(row, str):
                raise TypeError(f"rows with {row!r}, which is no str")
        return result


_TYPES: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {"str": str, "bool": bool, "float": (int, float)}
)


def _check_types(part: ProbeResult | Observation | Figure) -> None:
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if not isinstance(value, _TYPES.get(str(field.type), object)):
            raise TypeError(f"{field.name} {value!r}, which is no {field.type}")
