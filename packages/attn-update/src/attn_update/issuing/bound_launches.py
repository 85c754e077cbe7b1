"""Launches of a plan that were made ready once, so that a step gives only what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attn_update.planning.step_parameters import StepParameters

Changes: TypeAlias = "Sequence[Mapping[str, object] | None]"
"""For each slot of a plan the arguments that changed, by name; None where none did."""


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


class BoundLaunches(Protocol):
    """The launches of one plan, made ready by an `attn_update.issuing.updater.Updater`.

    They hold what the plan holds: weak tensors, the workspace, and addresses that stay valid as
    long as the plan's task groups and events.
    """

    @property
    def num_dispatched(self) -> int:
        """How many launches torch dispatches to its current stream; the others need none."""

    def take(self, parameters: StepParameters) -> Changes | None:
        """Check the arguments of a step and give them to the launches, where that is quick.

        Args:
            parameters: Of the key that was bound.

        Returns:
            For each slot an empty mapping where its launches were given other lengths, or tensors
            of other memory, than they had; `run` is called with that next, or with all values of a
            later step. None where nothing was given: what the parameters are, and whether they are
            right, is then for `UpdatePlan.check` to say.
        """

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
