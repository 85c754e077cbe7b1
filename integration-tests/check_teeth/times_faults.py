"""Timing faults: operations that should be fast take a tenth of a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 0.1


def _slow_replays() -> None:
    import torch

    before = torch.npu.NPUGraph.replay  # type: ignore[attr-defined]

    def replay(self: Any) -> None:
        time.sleep(_SECONDS)
        before(self)

    torch.npu.NPUGraph.replay = replay  # type: ignore[attr-defined]


def _slow_updates() -> None:
    from attn_update import UpdateLane

    before = UpdateLane.run

    def run(self: Any, *given: Any, **named: Any) -> Any:
        time.sleep(_SECONDS)
        return before(self, *given, **named)

    UpdateLane.run = run  # type: ignore[method-assign]


TIMES: Mapping[str, Sequence[Fault]] = {
    "times.replay": [Fault(what="each replay takes the host 0.1 s", apply=_slow_replays)],
    "times.update": [Fault(what="a lane takes the host 0.1 s a step", apply=_slow_updates)],
}
