"""Launches all updates of a step at once, by addresses of CANN's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update.errors import PlanError
from attn_update.issuing.operator_issuer import BoundPlan, OperatorIssuer, update_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.issuing.updater import BoundLaunches, Changes, LaunchFailure, Updater
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.task_device import AddressedDevice, DirectLaunchDevice, Stream, TaskDevice


class AddressedIssuer(OperatorIssuer):
    """Launches the updates of plans that an updater binds on one stream, all at once.

    Updates of other plans are launched one by one. Its marks are events of the updater, which
    are recorded and waited for without the device's launch queue. ``direct`` and ``addressed``
    are the same device, by what it offers.
    """

    def __init__(
        self,
        device: TaskDevice,
        stream: Stream,
        direct: DirectLaunchDevice,
        *,
        addressed: AddressedDevice,
        calls: Mapping[str, int],
        updater: Updater,
    ) -> None:
        super().__init__(device, stream, direct)
        self._addressed = addressed
        self._calls = calls
        self._updater = updater
        self._record = updater.event_recorder(calls)
        self._address = addressed.stream_address(stream)

    def bind(self, plan: UpdatePlan) -> BoundPlan:
        """Prepare the launches of a plan with the updater; nothing is launched.

        Raises:
            PlanError: An argument of a launch is invalid.
        """
        try:
            launches = self._updater.bind(plan, self._addressed, self._calls)
        except (RuntimeError, ValueError, TypeError) as error:
            raise PlanError(
                f"binding the launches of key {plan.key!r} for {type(self._updater).__name__}: "
                f"{error}; make the lane with updater='operators' for this kind",
            ) from error
        if isinstance(launches, str):
            return BoundPlan(plan=plan, launches=None, unbound_reason=launches)
        return BoundPlan(plan=plan, launches=launches, unbound_reason=None)

    def mark_replay(self, stream: Stream) -> Any:
        """Return a mark after all work this thread has queued on a stream, such as a replay."""
        # The device returns the address once all that was queued has been launched.
        return self._record(self._addressed.stream_address(stream))

    def wait_for_replay(self, mark: Any) -> None:
        """Make all later updates wait for a mark, on the device."""
        mark.wait(self._address)

    def order_behind(self, mark: Any, stream: Stream) -> None:
        """Make all later work of another stream wait for a mark, on the device."""
        mark.wait(self._addressed.stream_address(stream))

    def issue(self, bound: BoundPlan, changes: Changes, *, release: bool) -> None:
        """See `OperatorIssuer.issue`."""
        launches, plan = bound.launches, bound.plan
        if launches is None:
            super().issue(bound, changes, release=release)
            return
        try:
            failure = self._run(launches, changes)
        except BaseException as error:
            # No update is open: a value does not fit its argument, or this is an interrupt.
            notes = self.release(plan.updates) if release else []
            if not isinstance(error, Exception):
                raise
            first = next(update for update in plan.updates if changes[update.slot] is not None)
            raise update_error(plan, first, error, notes) from error
        if failure is not None:
            updates = plan.updates
            notes = self.close_update() if failure.open else []
            if release:
                notes += self.release(updates[failure.position :])
            failed = updates[failure.position]
            raise update_error(plan, failed, RuntimeError(failure.message), notes)

    def _run(self, launches: BoundLaunches, changes: Changes) -> LaunchFailure | None:
        if launches.num_dispatched == 0:
            return launches.run(changes, self._address)
        with self._device.use_stream(self.stream):
            return launches.run(changes, self._address)
