"""The report on one compiled FX graph: fusions, near misses, and the split plan."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_passes import Report
    from piecewise_split import SplitPlan


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CompilationReport:
    """The report on one graph that the backend compiled.

    Attributes:
        fusions: matches and near misses, with reasons; ``None`` if no fusion rule ran.
        plan: the split plan, or ``None`` if the graph was not split.
        num_captured_pieces: number of pieces wrapped for capture.
        cache: where the compile cache found or stored the graph, or why it could not; ``None``
            without a cache folder.
    """

    fusions: Report | None
    plan: SplitPlan | None
    num_captured_pieces: int
    cache: str | None = None

    def __str__(self) -> str:
        parts = (self.fusions, self.plan, self.cache)
        return "\n\n".join(str(part) for part in parts if part is not None)
