"""Statistics of episodes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass
class EpisodeCounts:
    """Statistics of episodes.

    Attributes:
        episodes: completed episodes.
        steps: correct steps.
        events: number of events by kind.
        errors: expected errors, by kind of event or shape and by class.
        interrupted: signals that arrived in time, by the interrupted operation.
    """

    episodes: int = 0
    steps: int = 0
    events: Counter[str] = dataclasses.field(default_factory=Counter)
    errors: Counter[str] = dataclasses.field(default_factory=Counter)
    interrupted: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the counts of other episodes, as `as_values` gives them."""
        self.episodes += other["episodes"]
        self.steps += other["steps"]
        for name in ("events", "errors", "interrupted"):
            getattr(self, name).update(other[name])

    def as_values(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            name: dict(value) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }
