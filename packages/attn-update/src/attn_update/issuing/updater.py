"""What issues all updates of a step at once, past torch's launch queue.

`attn_update.issuing.native.native_updater` does it in C++ for any operator,
`attn_update.issuing.kernels.kernel_updater` in Python for those whose kernels it knows. Without one
a lane calls torch's operators, layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from attn_update.issuing.addressed_event import AddressedEvents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attn_update.issuing.native.attn_update_native import ReplayEvents as NativeEvents
    from attn_update.planning.step_parameters import StepParameters
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.task_device import AddressedDevice

Changes: TypeAlias = "Sequence[Mapping[str, object] | None]"
"""For each slot of a plan the arguments that changed, by name; None where none did."""


@dataclass(frozen=True, kw_only=True)
class Unbindable:
    """A plan has a launch that an updater cannot issue.

    Attributes:
        reason: Which, and why.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class LaunchFailure:
    """Where launches stopped.

    Attributes:
        position: Of the update in the plan.
        open: Whether its task update was begun and not ended.
        message: What failed.
    """

    position: int
    open: bool
    message: str


class BoundLaunches(ABC):
    """The launches of one plan, made ready once by an `Updater`: a step gives only what changed.

    They hold what the plan holds: weak tensors, the workspace, and addresses that stay valid as
    long as the plan's task groups and events.

    Attributes:
        num_dispatched: How many launches torch dispatches to its current stream; the others need
            none.
    """

    num_dispatched: int = 0

    def take(self, parameters: StepParameters) -> Changes | None:
        """Check the arguments of a step and give them to the launches, where that is quick.

        Args:
            parameters: Of the key that was bound.

        Returns:
            For each slot an empty mapping where its launches were given other lengths, or tensors
            of other memory, than they had; `run` is called with that next, or with all values of a
            later step. None where nothing was given, as always here: what the parameters are, and
            whether they are right, is then for `UpdatePlan.check` to say.
        """
        del parameters
        return None

    @abstractmethod
    def run(self, changes: Changes, stream_address: int) -> LaunchFailure | None:
        """Update the changed launches on a stream and set all external events.

        Args:
            changes: A launch keeps what it was given before.
            stream_address: Of a stream that launches directly; it has to be the current one if
                anything is dispatched.

        Returns:
            None, or where it stopped; the events from there on are not set.

        Raises:
            ValueError: A value does not fit its argument; nothing was begun.
            BaseException: An interrupt; no update is left open.
        """


class Updater(ABC):
    """Makes the launches of plans ready, on any device that tells its addresses."""

    @abstractmethod
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

    def replay_events(self, calls: Mapping[str, int]) -> AddressedEvents | NativeEvents:
        """Return the maker of events after replays; CANN keeps each until nothing waits for it.

        Args:
            calls: What the device's `native_calls` returned.
        """
        return AddressedEvents(calls)
