"""The seam between an update lane and what puts the updates of a step on its stream.

`attn_update.issuing.operator_issuer` does it one by one, `attn_update.issuing.addressed_issuer` all
at once. Why the updates may run is the business of `attn_update.lane.update_lane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.issuing.bound_launches import Changes
    from attn_update.planning.update_plan import PlannedUpdate, UpdatePlan
    from attn_update.task_device import Stream


class StepIssuer(Protocol):
    """Puts updates on one stream, which it owns. Used by one thread at a time.

    A mark is the point on a stream behind a replay; only the issuer that made it understands it.
    """

    @property
    def stream(self) -> Stream:
        """The stream."""

    def bind(self, plan: UpdatePlan) -> None:
        """Prepare a plan, whose `bound_by` is this issuer from then on; nothing is launched.

        Raises:
            PlanError: An argument of a launch does not fit.
        """

    def mark_replay(self, stream: Stream) -> Any:
        """Return a mark behind all that this thread has put on a stream, such as a replay."""

    def wait_for_replay(self, mark: Any) -> None:
        """Let all later updates wait, on the device, for a mark."""

    def order_behind(self, mark: Any, stream: Stream) -> None:
        """Let all later work of another stream wait, on the device, for a mark."""

    def issue(self, plan: UpdatePlan, changes: Changes, *, release: bool) -> None:
        """Update the launches of the changed slots and set all external events of a step.

        Args:
            plan: A bound one.
            changes: What the step gives its slots; a launch keeps what it was given before.
            release: Whether the captured graph is waiting, so that its events are set even where
                an update fails.

        Raises:
            UpdateError: An update failed.
        """

    def release(self, updates: Sequence[PlannedUpdate]) -> list[str]:
        """Set the external events of updates that were not issued; returns what failed in that."""
