"""Counters of an update lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_update.issuing.bound_plan import BoundPlan
    from attn_update.issuing.updater import Changes


@dataclass(kw_only=True)
class LaneCounters:
    """Counts the work of a lane.

    Attributes:
        steps: Successful steps; with a worker thread, those passed to it.
        updates: Updated launches.
        skipped: Launches not updated because their step parameters had not changed.
        failures: Steps that failed after something was launched.
        updater_steps: Steps whose updates the lane's updater launched.
    """

    steps: int = 0
    updates: int = 0
    skipped: int = 0
    failures: int = 0
    updater_steps: int = 0

    def count_updates(self, bound: BoundPlan, changes: Changes) -> None:
        """Count the launches of a successful step."""
        if bound.launches is not None:
            self.updater_steps += 1
        for size, changed in zip(bound.plan.slot_sizes, changes, strict=True):
            if changed is None:
                self.skipped += size
            else:
                self.updates += size
