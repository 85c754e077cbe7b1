"""Counts the places of a plain torch model that were raised to torch_npu operators, by kind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fx_passes.raising import SITE_KINDS, find_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule

    from fx_passes import PassReport

RAISING = "raise"


class RaisingObserver:
    """Counts the places that could be raised and those that were, in the passes of one run."""

    def __init__(self) -> None:
        self._found: Counter[str] | None = None
        self._left: Counter[str] | None = None

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Count the places before the raising pass."""
        if name == RAISING and self._found is None:
            self._found = _count(graph_module)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Count the places that remain."""
        if report.name == RAISING:
            self._left = _count(graph_module)

    def lines(self) -> Iterator[str]:
        """Yield one line per kind; none if the pipeline does not raise."""
        if self._left is None or self._found is None:
            return
        for kind in SITE_KINDS:
            found = self._found[kind]
            if found:
                yield f"raised: {max(found - self._left[kind], 0)} of {found} places of {kind}"


def _count(graph_module: GraphModule) -> Counter[str]:
    return Counter(kind for kind, _ in find_sites(graph_module.graph))
