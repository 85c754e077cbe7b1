"""How the updates of a checked step are put on the update lane's stream.

Natively in one call, or one by one: through the fused call where the device has one, else as
begin, operator, end and record. Why they may run is the business of `attn_update.update_lane`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_update.direct_launch import find_direct_launch
from attn_update.errors import UpdateError
from attn_update.native_lane import find_native_lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_update.native_lane import NativeLane
    from attn_update.native_updater import NativeUpdater
    from attn_update.replay_mark import ReplayMark
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.update_plan import CheckedStep, PlannedUpdate, UpdatePlan


@dataclass(kw_only=True)
class LaneCounters:
    """What a lane has done.

    Attributes:
        steps: Steps that went well; with a worker thread, those handed to it.
        updates: Launches updated.
        skipped: Launches left alone because their step parameters had not changed.
        failures: Steps that failed after something was launched.
        native_steps: Steps whose updates the native updater issued.
    """

    steps: int = 0
    updates: int = 0
    skipped: int = 0
    failures: int = 0
    native_steps: int = 0


class StepIssuer:
    """Puts updates on one stream, which it makes and owns. Used by one thread at a time.

    Args:
        device: Of the stream.
        direct: Whether the stream shall launch past the device's launch queue, where it can.
        native: Issues all updates of a step in one call, where the device allows that.
        counters: Are counted up.

    Attributes:
        stream: The stream.
        native_reason: Why updates are not issued natively; None if they are.
    """

    def __init__(
        self,
        device: TaskDevice,
        *,
        direct: bool,
        native: NativeUpdater | None,
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
        self.native_reason: str | None
        self._native: NativeLane | None
        self._native, self.native_reason = find_native_lane(
            device, native, self.stream if self._direct is not None else None
        )

    def bind(self, plan: UpdatePlan) -> None:
        """Prepare a plan, unless it was prepared before; nothing is launched.

        Raises:
            PlanError: An argument of a launch cannot be turned into C++.
        """
        if self._native is not None:
            self._native.bind(plan)

    def mark_replay(self, stream: Stream) -> ReplayMark:
        """Return a mark behind all that this thread has put on a stream, such as a replay."""
        return stream.record_event() if self._native is None else self._native.mark_replay(stream)

    def wait_for_replay(self, replayed: ReplayMark | None) -> None:
        """Let all later updates wait, on the device, for a replay.

        Args:
            replayed: Made by `mark_replay`; None for no replay.
        """
        if replayed is None:
            return
        if self._direct is not None and self._native is None:
            # What stands in the launch queue would be overtaken: Note [direct launch] of the lane.
            self._direct.flush_launches()
        replayed.wait(self.stream)

    def issue(self, step: CheckedStep, changed: Sequence[bool], *, release: bool) -> None:
        """Update the launches of the changed slots and set all external events of a step.

        Args:
            step: Of a bound plan.
            changed: For each slot whether its values changed.
            release: Whether the captured graph is waiting, so that its events are set even where
                an update fails.

        Raises:
            UpdateError: An update failed.
        """
        if self._native is not None:
            self._issue_natively(step, changed, self._native, release=release)
        else:
            self._issue_one_by_one(step, changed, release=release)
        sizes = step.plan.slot_sizes
        updated = sum(itertools.compress(sizes, changed))
        self._counters.updates += updated
        self._counters.skipped += len(step.plan.updates) - updated

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

    def _issue_natively(
        self, step: CheckedStep, changed: Sequence[bool], native: NativeLane, *, release: bool
    ) -> None:
        updates = step.plan.updates
        try:
            failure = native.run(step, changed)
        except BaseException:
            # Nothing was begun: a value could not be turned into C++.
            if release:
                self.release(updates)
            raise
        if failure is not None:
            notes = self._close() if failure.open else []
            if release:
                notes += self.release(updates[failure.position :])
            error = RuntimeError(failure.message)
            raise _update_error(step.plan, updates[failure.position], error, notes)
        self._counters.native_steps += 1

    def _issue_one_by_one(
        self, step: CheckedStep, changed: Sequence[bool], *, release: bool
    ) -> None:
        updates, stream = step.plan.updates, self.stream
        begin, end = self._device.begin_task_update, self._device.end_task_update
        position = 0
        open_update = False
        with self._device.use_stream(stream):
            try:
                for position, update in enumerate(updates):  # noqa: B007
                    if changed[update.slot]:
                        launch = update.launch
                        launch.update(step.values[update.slot])
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
                raise _update_error(step.plan, updates[position], error, notes) from error

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
