"""What a compilation did to one FX graph: fusions made and missed, the split plan."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_passes import PipelineReport
    from piecewise_split import SplitPlan


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CompilationReport:
    """One graph that the backend compiled.

    Attributes:
        fusions: matches and near misses, with reasons.
        plan: the split plan, or ``None`` where the graph was not split.
        num_captured_pieces: pieces wrapped for capture.
    """

    fusions: PipelineReport
    plan: SplitPlan | None
    num_captured_pieces: int

    def __str__(self) -> str:
        """Return the report as text for a person."""
        parts = [str(self.fusions)]
        if self.plan is not None:
            parts.append(str(self.plan))
        return "\n\n".join(parts)
