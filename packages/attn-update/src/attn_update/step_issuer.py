"""How the updates of a checked step are put on the update lane's stream.

All at once by an updater, or one by one: through the fused call where the device has one, else as
begin, operator, end and record. Why they may run is the business of `attn_update.update_lane`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_update.addressed_lane import find_addressed_lane
from attn_update.direct_launch import find_direct_launch
from attn_update.errors import UpdateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.addressed_lane import AddressedLane
    from attn_update.bound_launches import BoundLaunches, Changes
    from attn_update.replay_mark import ReplayMark
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.update_plan import PlannedUpdate, UpdatePlan
    from attn_update.updater import Updater


@dataclass(kw_only=True)
class LaneCounters:
    """What a lane has done.

    Attributes:
        steps: Steps that went well; with a worker thread, those handed to it.
        updates: Launches updated.
        skipped: Launches left alone because their step parameters had not changed.
        failures: Steps that failed after something was launched.
        updater_steps: Steps whose updates the lane's updater issued.
    """

    steps: int = 0
    updates: int = 0
    skipped: int = 0
    failures: int = 0
    updater_steps: int = 0


class StepIssuer:
    """Puts updates on one stream, which it makes and owns. Used by one thread at a time.

    Args:
        device: Of the stream.
        direct: Whether the stream shall launch past the device's launch queue, where it can.
        updater: Issues all updates of a step at once, where the device allows that.
        counters: Are counted up.

    Attributes:
        stream: The stream.
        updater_reason: Why the updater is not used; None if it is.
    """

    def __init__(
        self,
        device: TaskDevice,
        *,
        direct: bool,
        updater: Updater | None,
        counters: LaneCounters,
    ) -> None:
        self._device = device
        self._counters = counters
        self._direct = find_direct_launch(device) if direct else None
        self.stream: Stream
        if self._direct is not None:
            self.stream = self._direct.create_direct_stream()
        else:
            # A graph that waits for its first update idles the device, so the lane goes first.
            self.stream = device.create_stream(priority=-1)
        self.updater_reason: str | None
        self._addressed: AddressedLane | None
        self._addressed, self.updater_reason = find_addressed_lane(
            device, updater, self.stream if self._direct is not None else None
        )

    def bind(self, plan: UpdatePlan) -> None:
        """Prepare a plan, unless it was prepared before; nothing is launched.

        Raises:
            PlanError: An argument of a launch does not fit.
        """
        if self._addressed is not None:
            plan.bind_launches(self._addressed)

    def mark_replay(self, stream: Stream) -> ReplayMark:
        """Return a mark behind all that this thread has put on a stream, such as a replay."""
        if self._addressed is None:
            return stream.record_event()
        return self._addressed.mark_replay(stream)

    def wait_for_replay(self, replayed: ReplayMark | None) -> None:
        """Let all later updates wait, on the device, for a replay.

        Args:
            replayed: Made by `mark_replay`; None for no replay.
        """
        if replayed is None:
            return
        if self._addressed is not None:
            self._addressed.wait_for_replay(replayed)
            return
        if self._direct is not None:
            # What stands in the launch queue would be overtaken: Note [direct launch] of the lane.
            self._direct.flush_launches()
        replayed.wait(self.stream)

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
        if self._addressed is None or plan.launches is None:
            self._issue_one_by_one(plan, changes, release=release)
        else:
            self._issue_at_once(plan, changes, self._addressed, plan.launches, release=release)
        for size, changed in zip(plan.slot_sizes, changes, strict=True):
            if changed is None:
                self._counters.skipped += size
            else:
                self._counters.updates += size

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

    def _issue_at_once(
        self,
        plan: UpdatePlan,
        changes: Changes,
        addressed: AddressedLane,
        launches: BoundLaunches,
        *,
        release: bool,
    ) -> None:
        updates = plan.updates
        try:
            failure = addressed.run(launches, changes)
        except BaseException:
            # Nothing was begun: a value does not fit.
            if release:
                self.release(updates)
            raise
        if failure is not None:
            notes = self._close() if failure.open else []
            if release:
                notes += self.release(updates[failure.position :])
            error = RuntimeError(failure.message)
            raise _update_error(plan, updates[failure.position], error, notes)
        self._counters.updater_steps += 1

    def _issue_one_by_one(self, plan: UpdatePlan, changes: Changes, *, release: bool) -> None:
        updates, stream = plan.updates, self.stream
        begin, end = self._device.begin_task_update, self._device.end_task_update
        position = 0
        open_update = False
        with self._device.use_stream(stream):
            try:
                for position, update in enumerate(updates):  # noqa: B007
                    changed = changes[update.slot]
                    if changed is not None:
                        launch = update.launch
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
                notes = self._close() if open_update else []
                if release:
                    notes += self.release(updates[position:])
                if not isinstance(error, Exception):
                    raise
                raise _update_error(plan, updates[position], error, notes) from error

    def _close(self) -> list[str]:
        try:
            self._device.end_task_update(self.stream)
        except Exception as error:  # noqa: BLE001
            return [f"closing the task update failed too ({error})"]
        return []


def _update_error(
    plan: UpdatePlan,
    update: PlannedUpdate,
    error: Exception,
    notes: list[str],
) -> UpdateError:
    also = "".join(f"; {note}" for note in notes)
    return UpdateError(
        f"updating {update.operator} of layer {update.layer_name!r}, key {plan.key!r}: {error}"
        f"{also}. The graph was released; throw the results of this step away, the next works",
        layer_name=update.layer_name,
        operator=update.operator,
    )
