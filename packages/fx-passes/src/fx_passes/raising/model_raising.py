"""Raises a graph and tells for each place whether it was raised, and why not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fx_passes.normal_form.normalize import normalize_graph
from fx_passes.raising.raising_pipeline import raising_pipeline
from fx_passes.raising.sites import SITE_KINDS, find_sites, why_left
from fx_passes.reports.report import missing_operators

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.fx import GraphModule, Node

    from fx_passes.pipeline import Pipeline
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


_RULES: Mapping[SiteKind, tuple[str, ...]] = MappingProxyType(
    {
        "norm": ("spelt_rms_norm", "raise_rms_norm"),
        "rope": ("raise_rotary",),
        "activation": ("fuse_swiglu", "raise_swiglu"),
        "attention": ("raise_sink_attention", "spelt_attention", "raise_attention"),
    }
)
_GELU_RULES = ("fuse_geglu", "raise_geglu")
# No pattern is wider than this.
_LONGEST_WAY = 12


@dataclass(frozen=True, kw_only=True)
class RaisingResult:
    """The result of raising a graph.

    Attributes:
        modified: Whether the graph changed.
        report: What was raised and what was not.
    """

    modified: bool
    report: RaisingReport


def raise_model(graph_module: GraphModule, pipeline: Pipeline | None = None) -> RaisingResult:
    """Raise the graph of a plain model to `npu::` operators, in place, and report on each place.

    Does the same as `pipeline.run`, and counts the places that could be raised before and after.

    Args:
        graph_module: The module, as Dynamo passes it to a backend.
        pipeline: The pipeline; by default that of `raising_pipeline`.

    Returns:
        Whether the graph changed, and the report.

    Raises:
        FxPassesError: A pass failed; the graph is then normalised and otherwise unchanged.
    """
    normalized = normalize_graph(graph_module) > 0
    if normalized:
        graph_module.recompile()
    graph = graph_module.graph
    sites = [
        (kind, node.name, _module_of(node), node, node.target) for kind, node in find_sites(graph)
    ]
    result = (raising_pipeline() if pipeline is None else pipeline).run(graph_module)
    present = set(graph_module.graph.nodes)
    named = {node.name: node for node in present}
    report = RaisingReport(
        sites=tuple(
            Site(
                kind=kind,
                node=name,
                module=module,
                raised=not (left := node in present and node.target is target),
                reason=_reason(kind, node, result.report, named) if left else "",
            )
            for kind, name, module, node, target in sites
        ),
        passes=result.report,
    )
    return RaisingResult(modified=normalized or result.modified, report=report)


def _module_of(node: Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return ""
    entry = list(stack.values())[-1]
    return str(entry[0]) if isinstance(entry, tuple) else ""


def _reason(kind: SiteKind, node: Node, report: Report, named: Mapping[str, Node]) -> str:
    """Return why a check rejected the nearest match for this kind, or what is missing."""
    rules = _GELU_RULES if node.target is torch.ops.aten.gelu.default else _RULES[kind]
    missing = [
        operator
        for each in report.rule_reports()
        if each.rule in rules
        for operator in each.waiting_for
    ]
    if missing:
        return missing_operators(missing)
    reasons = {
        named[name]: miss.reason
        for rule in rules
        for miss in report.near_misses(rule)
        if miss.whole
        for name in (miss.anchor, *miss.nodes)
        if name in named
    }
    nearest = _nearest(node, reasons)
    if nearest is not None:
        return reasons[nearest]
    return why_left(kind, node)


def _nearest(start: Node, wanted: Iterable[Node]) -> Node | None:
    """Return that of some nodes which is the fewest calls away, or None if all are far."""
    goal = set(wanted)
    pending, seen = deque([(start, 0)]), {start}
    while pending:
        node, steps = pending.popleft()
        if node in goal:
            return node
        if steps == _LONGEST_WAY:
            continue
        for other in (*node.all_input_nodes, *node.users):
            if other not in seen and other.op == "call_function":
                seen.add(other)
                pending.append((other, steps + 1))
    return None
