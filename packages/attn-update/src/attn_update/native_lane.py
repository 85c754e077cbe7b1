"""The native updater as an update lane uses it: on one stream, each plan bound once."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from attn_update.errors import PlanError
from attn_update.native_device import find_native_calls
from attn_update.replay_mark import NativeReplayMark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attn_update.native_device import NativeUpdateDevice
    from attn_update.native_updater import NativeFailure, NativeLaunches, NativeUpdater
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.update_plan import CheckedStep, UpdatePlan


class NativeLane:
    """The native updater on one device and stream, with the plans bound so far.

    Args:
        updater: Binds the plans.
        device: Tells addresses.
        calls: What its `native_calls` returned.
        stream: Launches directly.
    """

    def __init__(
        self,
        updater: NativeUpdater,
        device: NativeUpdateDevice,
        calls: Mapping[str, int],
        stream: Stream,
    ) -> None:
        self._updater = updater
        self._device = device
        self._calls = calls
        self._events = updater.replay_events(calls)
        self._stream = stream
        self._stream_address = device.stream_address(stream)
        self._bound: weakref.WeakKeyDictionary[UpdatePlan, NativeLaunches]
        self._bound = weakref.WeakKeyDictionary()

    def bind(self, plan: UpdatePlan) -> None:
        """Bind a plan, unless it was bound before; nothing is launched.

        Raises:
            PlanError: An argument of a launch cannot be turned into C++.
        """
        if plan in self._bound:
            return
        try:
            self._bound[plan] = self._updater.bind(plan, self._device, self._calls)
        except (RuntimeError, ValueError, TypeError) as error:
            raise PlanError(
                f"binding the launches of key {plan.key!r} natively: {error}; make the lane "
                f"without a native updater for this kind",
            ) from error

    def mark_replay(self, stream: Stream) -> NativeReplayMark:
        """Return a mark behind all that this thread has put on a stream."""
        # The address is told when all that was queued has been handed over.
        event = self._events.record(self._device.stream_address(stream))
        return NativeReplayMark(event, self._device)

    def run(self, step: CheckedStep, changed: Sequence[bool]) -> NativeFailure | None:
        """Issue a step of a bound plan."""
        launches = self._bound[step.plan]
        if launches.num_dispatched == 0:
            return launches.run(step, changed, self._stream_address)
        with self._device.use_stream(self._stream):
            return launches.run(step, changed, self._stream_address)


def find_native_lane(
    device: TaskDevice, updater: NativeUpdater | None, direct_stream: Stream | None
) -> tuple[NativeLane | None, str | None]:
    """Return the native side of an update lane, or None and what is missing for it."""
    if updater is None:
        return None, "the lane was made without a native updater"
    if direct_stream is None:
        return None, "the lane's stream does not launch directly"
    found = find_native_calls(device)
    if found is None:
        return None, "the device does not tell the addresses of its calls"
    native_device, calls = found
    return NativeLane(updater, native_device, calls, direct_stream), None
