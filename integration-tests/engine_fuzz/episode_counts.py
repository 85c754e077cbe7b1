"""What has happened in episodes, as figures."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass
class EpisodeCounts:
    """What has happened in episodes.

    Attributes:
        episodes: that ended.
        steps: that were right.
        events: by kind.
        errors: named ones that an event or a shape was a reason for, by kind and class.
        interrupted: signals that came in time, by what they came into.
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
