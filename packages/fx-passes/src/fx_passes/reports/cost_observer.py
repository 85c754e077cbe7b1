"""Measures the cost of a graph per step, before and after its fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.memory.effect import EffectTable
from fx_passes.rewriting.cost import Cost, cost_of

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fx_passes.reports.report import PassReport


class CostObserver:
    """Counts launches and bytes of a graph before and after the passes of one run.

    Before means after normalisation, if the pipeline normalises: a graph of Dynamo writes a
    launch in many ways, which only its normal form shows. Operators that the process knows nothing
    of count as launches. Serves one graph; a pass costs some microseconds a node.

    Attributes:
        before: What the graph cost; None until a pipeline has run.
        after: What it costs now; None until a pipeline has run.
    """

    def __init__(self) -> None:
        self.before: Cost | None = None
        self.after: Cost | None = None

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Count the graph before the first pass."""
        del name
        if self.before is None:
            self.before = self.after = _cost(graph_module)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Count the graph again where a pass changed it."""
        if report.modified:
            self.after = _cost(graph_module)
        if report.name == "normalize" and report.round == 1:
            self.before = self.after


def _cost(graph_module: GraphModule) -> Cost:
    return cost_of(graph_module.graph.nodes, EffectTable())
