"""Writes an observer's events as a trace that Perfetto opens."""

from npu_graph_runtime.tracing.trace import Trace
from npu_graph_runtime.tracing.trace_observer import TraceObserver

__all__ = [
    "Trace",
    "TraceObserver",
]
