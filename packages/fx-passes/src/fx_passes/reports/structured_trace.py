"""What a run of a pipeline leaves in torch's structured trace, which tlparse shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.torch_internals import trace_artifact

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fx_passes.reports.report import Report


def trace_graph(graph_module: GraphModule, stage: str) -> None:
    """Leave the graph as code, with shapes and data types, under the name `fx_passes_<stage>`.

    Does nothing unless somebody traces (`TORCH_TRACE`). The module need not be recompiled.
    """
    trace_artifact(f"fx_passes_{stage}", lambda: graph_module.print_readable(print_output=False))


def trace_report(report: Report) -> None:
    """Leave the report as text, under the name `fx_passes_report`, if somebody traces."""
    trace_artifact("fx_passes_report", report.__str__)
