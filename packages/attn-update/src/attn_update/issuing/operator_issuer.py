"""Launches updates one by one: with the device's fused call if it has one, else with four calls.

The four calls begin the update, run the torch operator, end the update, and record the event.
`attn_update.issuing.addressed_issuer` launches all updates at once.
`attn_update.lane.update_lane` explains why they may run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attn_update.errors import UpdateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.issuing.updater import BoundLaunches, Changes
    from attn_update.planning.update_plan import PlannedUpdate, UpdatePlan
    from attn_update.task_device import DirectLaunchDevice, Stream, TaskDevice


@dataclass(slots=True, kw_only=True)
class BoundPlan:
    """The prepared state of a plan for the steps of one lane, which owns it.

    Attributes:
        plan: The plan, which does not change.
        launches: The launches prepared by an updater; None if they are called one by one.
        unbound_reason: Why they are called one by one; None if they are not.
        arguments: For each update of the plan the keyword arguments of its latest launch, if
            launches are called one by one.
    """

    plan: UpdatePlan
    launches: BoundLaunches | None
    unbound_reason: str | None
    arguments: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        """Copy the arguments, which steps overwrite."""
        updates = self.plan.updates if self.launches is None else ()
        self.arguments = [dict(update.launch) for update in updates]


class OperatorIssuer:
    """Launches updates on one stream of any device. Used by one thread at a time.

    A mark is the point on a stream after a replay; only the issuer that created it understands it.

    Args:
        device: Device of the stream.
        stream: The stream, owned by this object.
        direct: The device, if the stream bypasses its launch queue; else None.

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
        """Prepare the launches of a plan; nothing is launched.

        Raises:
            PlanError: An argument of a launch is invalid.
        """
        reason = "the lane issues updates by operators"
        return BoundPlan(plan=plan, launches=None, unbound_reason=reason)

    def mark_replay(self, stream: Stream) -> Any:
        """Return a mark after all work this thread has queued on a stream, such as a replay."""
        return stream.record_event()

    def wait_for_replay(self, mark: Any) -> None:
        """Make all later updates wait for a mark, on the device."""
        if self._direct is not None:
            # What stands in the launch queue would be overtaken: Note [direct launch] of the lane.
            self._direct.flush_launches()
        mark.wait(self.stream)

    def order_behind(self, mark: Any, stream: Stream) -> None:
        """Make all later work of another stream wait for a mark, on the device."""
        mark.wait(stream)

    def issue(self, bound: BoundPlan, changes: Changes, *, release: bool) -> None:
        """Update the launches of the changed slots and set all external events of a step.

        Args:
            bound: The result of `bind` for the plan.
            changes: The step's values for its slots; launches without a change keep their values.
            release: Whether the captured graph is waiting, so that its events must be set even if
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
        """Set the external events of updates that were not launched; return errors of doing so."""
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
        """End the open task update; return errors of doing so."""
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
    """Return the error for a failed update."""
    also = "".join(f"; {note}" for note in notes)
    return UpdateError(
        f"updating {update.operator} of layer {update.layer_name!r}, key {plan.key!r}: {error}"
        f"{also}. The graph was released; throw the results of this step away, the next works",
        layer_name=update.layer_name,
        operator=update.operator,
    )
