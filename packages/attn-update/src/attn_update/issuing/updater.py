"""What issues all updates of a step at once, past torch's launch queue.

`attn_update.issuing.native.native_updater` does it in C++ for any operator,
`attn_update.issuing.kernels.kernel_updater` in Python for those whose kernels it knows. Without one
a lane calls torch's operators, layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.issuing.bound_launches import BoundLaunches
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.task_device import AddressedDevice


class ReplayEvent(Protocol):
    """An event of the device behind a replay. CANN keeps it until nothing waits for it."""

    def wait(self, stream: int, /) -> None:
        """Let all later work of the stream with this address wait for it, at once."""


class ReplayEvents(Protocol):
    """Makes events behind replays."""

    def record(self, stream: int, /) -> ReplayEvent:
        """Return a new event, recorded on the stream with this address, at once."""


@dataclass(frozen=True, kw_only=True)
class Unbindable:
    """A plan has a launch that an updater cannot issue.

    Attributes:
        reason: Which, and why.
    """

    reason: str


class Updater(Protocol):
    """Makes the launches of plans ready, on any device that tells its addresses."""

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> BoundLaunches | Unbindable:
        """Return the launches of a plan, or why this updater cannot issue them.

        Args:
            plan: Whose `PlannedUpdate.launch` is read now and not later.
            device: Of the plan.
            calls: What the device's `native_calls` returned.

        Raises:
            RuntimeError, ValueError, TypeError: An argument of a launch does not fit.
        """

    def replay_events(self, calls: Mapping[str, int]) -> ReplayEvents:
        """Return what makes events behind replays.

        Args:
            calls: What the device's `native_calls` returned.
        """
