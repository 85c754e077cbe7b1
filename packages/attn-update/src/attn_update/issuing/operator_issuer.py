"""The updates of a step one by one: by the fused call where the device has one, else by four calls.

The four are begin, the operator of torch, end and record. `attn_update.issuing.addressed_issuer`
puts them on the stream all at once. Why they may run is the business of
`attn_update.lane.update_lane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update.errors import UpdateError
from attn_update.issuing.bound_plan import BoundPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.issuing.updater import Changes
    from attn_update.planning.update_plan import PlannedUpdate, UpdatePlan
    from attn_update.task_device import DirectLaunchDevice, Stream, TaskDevice


class OperatorIssuer:
    """Puts updates on one stream of any device, which it owns. Used by one thread at a time.

    A mark is the point on a stream after a replay; only the issuer that made it understands it.

    Args:
        device: Of the stream.
        stream: Owned from now on.
        direct: The device, where the stream launches past its launch queue; else None.

    Attributes:
        stream: As given.
    """

    def __init__(
        self,
        device: TaskDevice,
        stream: Stream,
        direct: DirectLaunchDevice | None,
    ) -> None:
        self.stream = stream
        self._device = device
        self._direct = direct

    def bind(self, plan: UpdatePlan) -> BoundPlan:
        """Make the launches of a plan ready; nothing is launched.

        Raises:
            PlanError: An argument of a launch does not fit.
        """
        reason = "the lane issues updates by operators"
        return BoundPlan(plan=plan, launches=None, unbound_reason=reason)

    def mark_replay(self, stream: Stream) -> Any:
        """Return a mark after all that this thread has put on a stream, such as a replay."""
        return stream.record_event()

    def wait_for_replay(self, mark: Any) -> None:
        """Let all later updates wait, on the device, for a mark."""
        if self._direct is not None:
            # What stands in the launch queue would be overtaken: Note [direct launch] of the lane.
            self._direct.flush_launches()
        mark.wait(self.stream)

    def order_behind(self, mark: Any, stream: Stream) -> None:
        """Let all later work of another stream wait, on the device, for a mark."""
        mark.wait(stream)

    def issue(self, bound: BoundPlan, changes: Changes, *, release: bool) -> None:
        """Update the launches of the changed slots and set all external events of a step.

        Args:
            bound: What `bind` returned for the plan.
            changes: What the step gives its slots; a launch keeps what it was given before.
            release: Whether the captured graph is waiting, so that its events are set even where
                an update fails.

        Raises:
            UpdateError: An update failed.
        """
        updates, stream, arguments = bound.plan.updates, self.stream, bound.arguments
        begin, end = self._device.begin_task_update, self._device.end_task_update
        position = 0
        open_update = False
        try:
            with self._device.use_stream(stream):
                for position, update in enumerate(updates):
                    changed = changes[update.slot]
                    if changed is not None:
                        launch = arguments[position]
                        launch.update(changed)
                        open_update = True
                        if update.fused is not None:
                            update.fused(stream, update.handle, update.event, **launch)
                            open_update = False
                            continue
                        begin(stream, update.handle)
                        update.call(**launch)
                        open_update = False
                        end(stream)
                    update.event.record(stream)
        except BaseException as error:
            notes = self.close_update() if open_update else []
            if release:
                notes += self.release(updates[position:])
            if not isinstance(error, Exception):
                raise
            raise update_error(bound.plan, updates[position], error, notes) from error

    def release(self, updates: Sequence[PlannedUpdate]) -> list[str]:
        """Set the external events of updates that were not issued; returns what failed in that."""
        notes = []
        for update in updates:
            try:
                update.event.record(self.stream)
            except Exception as error:  # noqa: BLE001, PERF203
                notes.append(
                    f"releasing the graph at layer {update.layer_name!r} failed too ({error})"
                )
        return notes

    def close_update(self) -> list[str]:
        """End the task update that is open; returns what failed in that."""
        try:
            self._device.end_task_update(self.stream)
        except Exception as error:  # noqa: BLE001
            return [f"closing the task update failed too ({error})"]
        return []


def update_error(
    plan: UpdatePlan,
    update: PlannedUpdate,
    error: Exception,
    notes: list[str],
) -> UpdateError:
    """Return the error of an update that failed.

    Args:
        plan: Of the step.
        update: That failed.
        error: Why.
        notes: What failed afterwards.
    """
    also = "".join(f"; {note}" for note in notes)
    return UpdateError(
        f"updating {update.operator} of layer {update.layer_name!r}, key {plan.key!r}: {error}"
        f"{also}. The graph was released; throw the results of this step away, the next works",
        layer_name=update.layer_name,
        operator=update.operator,
    )
