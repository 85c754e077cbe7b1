"""Whether a step replays first or updates first."""

from __future__ import annotations

import enum


class UpdateOrder(enum.Enum):
    """The order of replay and updates in a step; `UpdateLane` shows both correct."""

    REPLAY_FIRST = "replay_first"
    """Replay, then update while the graph already runs up to its first attention. The default."""

    UPDATE_FIRST = "update_first"
    """Update, and let the replay wait on the device until all updates are done. For devices whose
    external events cannot be waited for inside a graph, or that refuse updates of a running one."""
