"""What a compilation did to one FX graph: fusions made and missed, the split plan."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_passes import Report
    from piecewise_split import SplitPlan


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CompilationReport:
    """One graph that the backend compiled.

    Attributes:
        fusions: matches and near misses, with reasons; ``None`` where no fusion rule ran.
        plan: the split plan, or ``None`` where the graph was not split.
        num_captured_pieces: pieces wrapped for capture.
        cache: where the compile cache had it or put it, or why it could do neither; ``None`` where
            the configuration names no folder.
    """

    fusions: Report | None
    plan: SplitPlan | None
    num_captured_pieces: int
    cache: str | None = None

    def __str__(self) -> str:
        """Return the report as text for a person."""
        parts = (self.fusions, self.plan, self.cache)
        return "\n\n".join(str(part) for part in parts if part is not None)
