"""The probes of open questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_check.probe import Probe

QUESTIONS: tuple[Probe, ...] = ()
