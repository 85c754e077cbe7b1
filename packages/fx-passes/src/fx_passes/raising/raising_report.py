"""What was raised, what was not and why, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.raising.sites import SITE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fx_passes.raising.sites import SiteKind
    from fx_passes.reports.report import Report


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place that could be raised.

    Attributes:
        kind: `norm`, `rope`, `activation` or `attention`.
        node: Name of the node that marks the place, in the graph before raising.
        module: Path of the module that the node came from, empty if unknown.
        raised: Whether it is an `npu::` operator now.
        reason: Why not; empty if raised.
    """

    kind: SiteKind
    node: str
    module: str
    raised: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class RaisingReport:
    """The result of raising a graph, place by place.

    Attributes:
        sites: All places found, in the order of the graph.
        passes: The reports of each pass and rule.
    """

    sites: tuple[Site, ...]
    passes: Report

    def found(self, kind: SiteKind | None = None) -> int:
        """Return how many places were found, of one kind or of all."""
        return sum(kind in {None, site.kind} for site in self.sites)

    def raised(self, kind: SiteKind | None = None) -> int:
        """Return how many places were raised, of one kind or of all."""
        return sum(site.raised and kind in {None, site.kind} for site in self.sites)

    def left(self, kind: SiteKind | None = None) -> tuple[Site, ...]:
        """Return the places that were not raised, of one kind or of all."""
        return tuple(site for site in self.sites if not site.raised and kind in {None, site.kind})

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for kind in SITE_KINDS:
            yield f"{kind}: {self.raised(kind)} of {self.found(kind)} raised"
            for site in self.left(kind):
                where = f"{site.node} ({site.module})" if site.module else site.node
                yield f"  - {where}: {site.reason}"
