"""The update lane: the stream on which a device's captured launches are rewritten, step by step.

Names. C is the stream that replays, U the lane's stream. The captured graph of one key has, for
each layer l, a wait for the external event x(l), which leaves it unset, and then the launch t(l).
Step i of that key puts R(i), the replay, on C and then, for each layer in order, u(i, l), the
update of t(l), and s(i, l), the record that sets x(l), on U. The host never waits.

Note [ordering]. After each R(i) an event d(i) is recorded on C, and U waits for d(i - 1) before
u(i, 0). From this, however far ahead of the device the host runs:

1. No launch runs with the arguments of a later step. u(i, l) comes after d(i - 1) on U, so R(i - 1)
   and all replays before it are finished when a task is rewritten.
2. No record is lost or taken by an earlier replay. s(i, l) comes after d(i - 1), so the waits of
   R(i - 1), which unset x(l), are over when s(i, l) sets it: exactly one record for each wait.
3. No launch runs with the arguments of an earlier step. By 2, x(l) is unset when R(i) begins, so
   t(l) in R(i) waits for s(i, l), which follows u(i, l) on U.
4. No deadlock. R(i) waits for work on U that waits only for R(i - 1), and so on down to the first
   replay, which waits for updates that wait for nothing.

d is kept for each key and not for the stream: u(i, l) need not wait for the replays of other keys
or other models, so their updates run while those graphs do. Each step has a new event, for a wait
that was already queued must never move to a later recording: by 4's chain that would be a deadlock.

The host values of a step are copied when they are checked and again when the operator is launched,
so the caller may reuse its lists at once.

Note [failure]. When an update of step i fails, the remaining events are recorded all the same, so
that R(i) ends; then `UpdateError` is raised. Whether x(l) of the failed layer is set once too often
cannot be known, and neither can, when the replay call itself fails, whether R(i) was queued. So the
key is marked unsettled, and its next step updates first and lets C wait for U: then the events are
not needed for the order, and the replay leaves all of them unset, as 3 demands from then on.

Note [direct launch]. On a device with a launch queue U may be a stream without it, see
`attn_update.direct_launch`. What is put on U then reaches the device at once, what is put on C
later. Only one wait crosses in that direction, that of U for d(i - 1), so the queue is flushed
before it.

In `UpdateOrder.UPDATE_FIRST` U waits for d(i - 1), all updates run, C waits for U, then R(i) runs:
1 and 2 hold as before, 3 and 4 by stream order.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch

from attn_update.direct_launch import find_direct_launch
from attn_update.errors import LaneError, UpdateError
from attn_update.native_lane import find_native_lane
from attn_update.update_order import UpdateOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from attn_update.native_lane import NativeLane
    from attn_update.native_updater import NativeUpdater
    from attn_update.record import KeyRecords
    from attn_update.step_parameters import StepParameters
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.update_plan import CheckedStep, PlannedUpdate, UpdatePlan

_Result = TypeVar("_Result")


@dataclass(kw_only=True)
class LaneCounters:
    """What a lane has done.

    Attributes:
        steps: Steps that went well.
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


class UpdateLane:
    """Updates and replays captured graphs of one device, in order and without a host wait.

    Make one for each device and share it between models: steps of several threads queue, one after
    the other, for as long as the host needs to issue them. The caller owns it and closes it.

    Args:
        device: The device of the graphs.
        order: What a step does first, unless `run` is told otherwise.
        skip_unchanged: Whether launches keep their arguments when the step parameters are those
            of the latest step of the key. Their external events are recorded all the same.
        direct: Whether to launch updates past the device's launch queue where it allows that.
        native: Issues all updates of a step in one call, on a device that launches directly and
            tells the addresses of its calls; elsewhere `native_reason` says what is missing, and
            updates are issued one by one. See `attn_update.native_updater`.

    Attributes:
        counters: What the lane has done.
        native_reason: Why updates are not issued natively; None if they are.
    """

    def __init__(
        self,
        device: TaskDevice,
        *,
        order: UpdateOrder = UpdateOrder.REPLAY_FIRST,
        skip_unchanged: bool = True,
        direct: bool = True,
        native: NativeUpdater | None = None,
    ) -> None:
        self.device = device
        self.counters = LaneCounters()
        self._order = order
        self._skip_unchanged = skip_unchanged
        self._direct = find_direct_launch(device) if direct else None
        self._stream: Stream | None
        if self._direct is not None:
            self._stream = self._direct.create_direct_stream()
        else:
            # A graph that waits for its first update idles the device, so the lane goes first.
            self._stream = device.create_stream(priority=-1)
        self.native_reason: str | None
        self._native: NativeLane | None
        self._native, self.native_reason = find_native_lane(
            device, native, self._stream if self._direct is not None else None
        )
        self._lock = threading.Lock()
        self._owner: int | None = None

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], _Result],
        *,
        order: UpdateOrder | None = None,
    ) -> _Result:
        """Run one step: check, replay and update. Returns as soon as all is queued.

        Args:
            plan: Of the graph that `replay` replays.
            parameters: Of this step.
            replay: Queues the replay on the current stream, and nothing that waits for it.
            order: What to do first; default as the lane was made.

        Returns:
            What `replay` returns.

        Raises:
            AttnUpdateError: From `UpdatePlan.check`; nothing was launched.
            LaneError: The lane is closed, this call is inside a `replay`, the current stream is
                the lane's own, or another lane updates this key; nothing was launched.
            UpdateError: An update failed; see Note [failure].
        """
        with self._alone() as stream:
            step = plan.check(parameters)
            current = self.device.current_stream()
            records = plan.records
            self._check_streams(stream, current, records)
            if self._native is not None:
                self._native.bind(plan)
            if records.unsettled or (order or self._order) is UpdateOrder.UPDATE_FIRST:
                result = self._update_first(step, replay, stream, current)
            else:
                result = self._replay_first(step, replay, stream, current)
            # Only now: a failed step may have left any mixture behind.
            records.unsettled = False
            records.latest = (plan, step.values)
            self.counters.steps += 1
            return result

    def close(self) -> None:
        """Give the stream up. Replays already queued finish; later steps are refused."""
        with self._lock:
            self._stream = None

    @contextmanager
    def _alone(self) -> Iterator[Stream]:
        me = threading.get_ident()
        if self._owner == me:
            raise LaneError(
                "running a step: this thread is inside a step of the same lane; a replay must not "
                "run another step",
            )
        with self._lock:
            if self._stream is None:
                raise LaneError("running a step: the update lane is closed; make a new one")
            self._owner = me
            try:
                yield self._stream
            finally:
                self._owner = None

    def _check_streams(self, stream: Stream, current: Stream, records: KeyRecords) -> None:
        if current == stream:
            raise LaneError(
                f"running a step of key {records.key!r}: the current stream is the update lane's "
                f"own, where the replay would wait for updates queued behind it; replay on "
                f"another stream (streams come from a small pool and may coincide)",
            )
        if records.lane is None:
            records.lane = self
        elif records.lane is not self:
            raise LaneError(
                f"running a step of key {records.key!r}: another update lane updates it, and two "
                f"have no common order; share one lane for each device",
            )

    def _replay_first(
        self,
        step: CheckedStep,
        replay: Callable[[], _Result],
        stream: Stream,
        current: Stream,
    ) -> _Result:
        records = step.plan.records
        self._wait_for_replay(records, stream)
        try:
            result = replay()
        except BaseException:
            # See Note [failure]: the replay may be queued or not.
            self._fail(records)
            self._record_events(step.plan.updates, stream)
            records.replayed = current.record_event()
            raise
        records.replayed = current.record_event()
        self._update(step, stream, release=True)
        return result

    def _update_first(
        self,
        step: CheckedStep,
        replay: Callable[[], _Result],
        stream: Stream,
        current: Stream,
    ) -> _Result:
        records = step.plan.records
        self._wait_for_replay(records, stream)
        self._update(step, stream, release=False)
        current.wait_event(stream.record_event())
        try:
            return replay()
        except BaseException:
            self._fail(records)
            raise
        finally:
            records.replayed = current.record_event()

    def _wait_for_replay(self, records: KeyRecords, stream: Stream) -> None:
        if records.replayed is None:
            return
        if self._direct is not None:
            # See Note [direct launch].
            self._direct.flush_launches()
        stream.wait_event(records.replayed)

    def _update(self, step: CheckedStep, stream: Stream, *, release: bool) -> None:
        changed = self._changed(step)
        if self._native is not None:
            self._update_natively(step, changed, self._native, stream, release=release)
        else:
            self._update_one_by_one(step, changed, stream, release=release)
        updates = step.plan.updates
        skipped = sum(not changed[update.slot] for update in updates)
        self.counters.skipped += skipped
        self.counters.updates += len(updates) - skipped

    def _update_natively(
        self,
        step: CheckedStep,
        changed: list[bool],
        native: NativeLane,
        stream: Stream,
        *,
        release: bool,
    ) -> None:
        updates = step.plan.updates
        try:
            failure = native.run(step, changed)
        except BaseException:
            # Nothing was begun: a value could not be turned into C++.
            self._fail(step.plan.records)
            if release:
                self._record_events(updates, stream)
            raise
        if failure is not None:
            self._fail(step.plan.records)
            notes = self._close(stream) if failure.open else []
            if release:
                notes += self._record_events(updates[failure.position :], stream)
            error = RuntimeError(failure.message)
            raise _update_error(step.plan, updates[failure.position], error, notes)
        self.counters.native_steps += 1

    def _update_one_by_one(
        self, step: CheckedStep, changed: list[bool], stream: Stream, *, release: bool
    ) -> None:
        updates = step.plan.updates
        begin, end = self.device.begin_task_update, self.device.end_task_update
        position = 0
        open_update = False
        with self.device.use_stream(stream):
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
                self._fail(step.plan.records)
                notes = self._close(stream) if open_update else []
                if release:
                    notes += self._record_events(updates[position:], stream)
                if not isinstance(error, Exception):
                    raise
                raise _update_error(step.plan, updates[position], error, notes) from error

    def _changed(self, step: CheckedStep) -> list[bool]:
        latest = step.plan.records.latest
        if not self._skip_unchanged or latest is None or latest[0] is not step.plan:
            return [True] * len(step.values)
        return [not _same(new, old) for new, old in zip(step.values, latest[1], strict=True)]

    def _fail(self, records: KeyRecords) -> None:
        records.unsettled = True
        records.latest = None
        self.counters.failures += 1

    def _close(self, stream: Stream) -> list[str]:
        try:
            self.device.end_task_update(stream)
        except Exception as error:  # noqa: BLE001
            return [f"closing the task update failed too ({error})"]
        return []

    def _record_events(self, updates: tuple[PlannedUpdate, ...], stream: Stream) -> list[str]:
        notes = []
        for update in updates:
            try:
                update.event.record(stream)
            except Exception as error:  # noqa: BLE001, PERF203
                notes.append(
                    f"releasing the graph at layer {update.layer_name!r} failed too ({error})"
                )
        return notes


def _same(new: Mapping[str, object], old: Mapping[str, object]) -> bool:
    return all(
        value is old[name] if isinstance(value, torch.Tensor) else value == old[name]
        for name, value in new.items()
    )


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
