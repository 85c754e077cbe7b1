"""One stream of a device that tells its addresses, with the updater that issues on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.addressed_device import find_native_calls
from attn_update.errors import PlanError
from attn_update.replay_mark import AddressedReplayMark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.addressed_device import AddressedDevice
    from attn_update.bound_launches import BoundLaunches, Changes, LaunchFailure
    from attn_update.replay_mark import ReplayMark
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.update_plan import UpdatePlan
    from attn_update.updater import Updater


class AddressedLane:
    """Binds plans, and issues their launches, by the addresses of a device and a stream.

    Args:
        updater: Binds the plans.
        device: Tells addresses.
        calls: What its `native_calls` returned.
        stream: Launches directly.
    """

    def __init__(
        self,
        updater: Updater,
        device: AddressedDevice,
        calls: Mapping[str, int],
        stream: Stream,
    ) -> None:
        self._updater = updater
        self._device = device
        self._calls = calls
        self._events = updater.replay_events(calls)
        self._stream = stream
        self._stream_address = device.stream_address(stream)

    def bind(self, plan: UpdatePlan) -> BoundLaunches | None:
        """Return the launches of a plan, or None where the updater cannot issue one of them.

        Raises:
            PlanError: An argument of a launch does not fit.
        """
        try:
            return self._updater.bind(plan, self._device, self._calls)
        except (RuntimeError, ValueError, TypeError) as error:
            raise PlanError(
                f"binding the launches of key {plan.key!r} for {type(self._updater).__name__}: "
                f"{error}; make the lane without an updater for this kind",
            ) from error

    def mark_replay(self, stream: Stream) -> AddressedReplayMark:
        """Return a mark behind all that this thread has put on a stream."""
        # The address is told when all that was queued has been handed over.
        event = self._events.record(self._device.stream_address(stream))
        return AddressedReplayMark(event, self._device)

    def wait_for_replay(self, mark: ReplayMark) -> None:
        """Let all later work of the lane's stream wait for a mark of `mark_replay`."""
        assert isinstance(mark, AddressedReplayMark)  # noqa: S101
        mark.event.wait(self._stream_address)

    def run(self, launches: BoundLaunches, changes: Changes) -> LaunchFailure | None:
        """Issue a step of a bound plan."""
        if launches.num_dispatched == 0:
            return launches.run(changes, self._stream_address)
        with self._device.use_stream(self._stream):
            return launches.run(changes, self._stream_address)


def find_addressed_lane(
    device: TaskDevice, updater: Updater | None, direct_stream: Stream | None
) -> tuple[AddressedLane | None, str | None]:
    """Return an update lane by addresses, or None and what is missing for it."""
    if updater is None:
        return None, "the lane was made without an updater"
    if direct_stream is None:
        return None, "the lane's stream does not launch directly"
    found = find_native_calls(device)
    if found is None:
        return None, "the device does not tell the addresses of its calls"
    addressed_device, calls = found
    return AddressedLane(updater, addressed_device, calls, direct_stream), None
