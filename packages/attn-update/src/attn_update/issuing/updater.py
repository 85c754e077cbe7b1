"""Launches all updates of a step at once, bypassing torch's launch queue.

`attn_update.issuing.native.native_updater` does so in C++ for any operator,
`attn_update.issuing.kernels.kernel_updater` in Python for operators whose kernels it knows. Without
one of them, a lane calls torch's operators, layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from attn_update.issuing.device_calls import AddressedEvent, DeviceCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from attn_update.planning.update_plan import StepParameters, UpdatePlan
    from attn_update.task_device import AddressedDevice

Changes: TypeAlias = "Sequence[Mapping[str, object] | None]"
"""For each slot of a plan the arguments that changed, by name; None where none did."""


class LaunchFailure(NamedTuple):
    """Where launches stopped.

    Attributes:
        position: Position of the update in the plan.
        open: Whether its task update was begun and not ended.
        message: The error message.
    """

    position: int
    open: bool
    message: str


class BoundLaunches(ABC):
    """The launches of one plan, prepared once by an `Updater`; a step only passes changes.

    They refer to what the plan refers to: weak tensors, the workspace, and addresses that stay
    valid as long as the plan's task groups and events.

    Attributes:
        num_dispatched: Number of launches that torch dispatches to its current stream.
    """

    num_dispatched: int = 0

    def take(self, parameters: StepParameters) -> Changes | None:
        """Check the arguments of a step and store them in the launches, if that is fast.

        Returns:
            For each slot, an empty mapping if its launches got other lengths than before, or
            tensors in other memory. Pass this to the next `run`, or pass all values of a later
            step. None if nothing was stored, as always in this base class; then call
            `UpdatePlan.check` to read and check the parameters.
        """
        del parameters
        return None

    @abstractmethod
    def run(self, changes: Changes, stream_address: int) -> LaunchFailure | None:
        """Update the changed launches on a stream and set all external events.

        Args:
            changes: Values for the slots; launches without a change keep their values.
            stream_address: Address of a stream that launches directly; it must be the current one
                if anything is dispatched.

        Returns:
            None, or where it stopped; the events from there on are not set.

        Raises:
            ValueError: A value is invalid for its argument; nothing was begun.
            BaseException: An interrupt; no update is left open.
        """


class Updater(ABC):
    """Prepares the launches of plans, on any device that provides its addresses."""

    @abstractmethod
    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> BoundLaunches | str:
        """Return the launches of a plan, or which this updater does not support, and why.

        Args:
            plan: The plan; `PlannedUpdate.launch` is read now and not later.
            device: Device of the plan.
            calls: The result of the device's `native_calls`.

        Raises:
            RuntimeError, ValueError, TypeError: An argument of a launch is invalid.
        """

    def event_recorder(self, calls: Mapping[str, int]) -> Callable[[int], Any]:
        """Return a function that records a new event on the stream at an address, after a replay.

        CANN keeps each until nothing waits for it.
        """
        return partial(AddressedEvent, DeviceCalls(calls))
