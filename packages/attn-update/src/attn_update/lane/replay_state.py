"""The state of the replays of one graph, as known to an update lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attn_update.recording.record import ReplayOwner

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.issuing.operator_issuer import BoundPlan
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.task_device import Stream


@dataclass(eq=False, slots=True)
class ReplayState(ReplayOwner):
    """State of the replays of one key's graph. Created by the lane that updates it.

    Attributes:
        lane: The lane that updates the graph.
        key: Key of the graph.
        is_guarded: Whether the graph calls back before each replay.
        bound: The plan of the latest step, prepared by the lane's issuer.
        bound_before: The plan before it, so that two plans may alternate.
        latest: The plan and the values of the latest step, if it succeeded; None for values that
            only the bound launches know.
        replayed: The mark after the latest replay, of the lane's issuer; updates wait for it on
            the device.
        replayed_on: The stream of the latest replay.
        unsettled: Whether external events may have been left set, because a step failed.
        is_open: Whether a step is in progress, from its check to its updates.
        is_run: Whether that step is one call of `run`, in which the graph is replayed once.
        awaits_replay: Whether the graph has not been replayed in that step yet; False if unknown.
        refusal: Why a replay was rejected in that step; None if none was.
    """

    lane: object
    key: Hashable
    is_guarded: bool = field(kw_only=True)
    bound: BoundPlan | None = None
    bound_before: BoundPlan | None = None
    latest: tuple[UpdatePlan, tuple[Mapping[str, object], ...] | None] | None = None
    replayed: object = None
    replayed_on: Stream | None = None
    unsettled: bool = False
    is_open: bool = False
    is_run: bool = False
    awaits_replay: bool = False
    refusal: str | None = None

    def open_step(self, *, is_run: bool) -> None:
        """Record that a step begins, whose graph is replayed next."""
        self.awaits_replay = self.is_guarded
        self.is_open = True
        self.is_run = is_run

    def refuse_other(self, key: Hashable) -> str | None:
        """Return why the graph of another key must not be replayed in the present step, or None."""
        if not self.is_open:
            return None
        self.refusal = (
            f"running a step of key {self.key!r}: the replay is that of another graph, of key "
            f"{key!r}, which would wait for ever for events that this step does not set; give the "
            f"plan and the parameters of key {key!r}, or replay the graph of key {self.key!r}. A "
            f"step that was begun ends with finish or abandon"
        )
        return self.refusal

    def note_replay(self) -> str | None:
        """Record a replay of this graph, or return why it is rejected: one step replays it once."""
        if self.is_run and self.is_guarded and not self.awaits_replay:
            self.refusal = (
                f"running a step of key {self.key!r}: its graph is replayed a second time, and "
                f"would wait for ever for updates that the step makes once; run a step for each "
                f"replay"
            )
            return self.refusal
        self.awaits_replay = False
        return None
