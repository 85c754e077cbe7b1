"""Shows the changes of passes to graphs as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.reports.graph_listing import GraphListing
from fx_passes.reports.report_page import PageStep, report_page

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule

    from fx_passes.reports.report import PassReport


class PageObserver:
    """Keeps the graph before and after each pass, and shows every fusion between them.

    One observer may observe many runs, one after the other: its page shows all graphs. A pass
    costs some 20 microseconds per node of the graph.
    """

    def __init__(self) -> None:
        self._steps: list[PageStep] = []
        self._before: GraphListing | None = None
        self._graph_module: GraphModule | None = None
        self._graphs = 0

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Keep the graph as it is."""
        del name
        if graph_module is not self._graph_module:
            self._graph_module, self._graphs = graph_module, self._graphs + 1
            self._before = GraphListing(graph_module.graph)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Keep the graph as it is now."""
        before = self._before or GraphListing(graph_module.graph)
        after = GraphListing(graph_module.graph) if report.modified else before
        self._steps.append(PageStep(graph=self._graphs, report=report, before=before, after=after))
        self._before = after

    def html(self, introduction: str = "") -> str:
        """Return the page: one self-contained text.

        Args:
            introduction: HTML above the fusions, for callers with more information about a
                compilation; inserted unchanged.
        """
        return report_page(self._steps, introduction)

    def write(self, path: Path) -> None:
        """Write the page; an existing file is replaced, missing folders are made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")
