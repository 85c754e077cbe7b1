"""Fuse operators in an FX graph: a linear-time rule engine, a pass pipeline and NPU fusions."""

from fx_passes.__about__ import __version__
from fx_passes.errors import (
    FingerprintError,
    FxPassesError,
    PassError,
    PipelineError,
    RuleError,
    TraceError,
)
from fx_passes.graph_pass import FunctionPass, GraphPass, NormalizePass, RulePass
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.normal_form.normalize import normalize_graph
from fx_passes.npu_pipeline import default_npu_pipeline
from fx_passes.pass_selection import PassSelection, TokenRange
from fx_passes.pipeline import PassObserver, Pipeline, PipelineResult
from fx_passes.reports.observers import (
    DiffObserver,
    DumpObserver,
    TimingObserver,
    VerifyObserver,
)
from fx_passes.reports.report import MatchRecord, NearMiss, PassReport, Report, RuleReport
from fx_passes.rewriting.graph_builder import GraphBuilder
from fx_passes.rewriting.rewriter import apply_rules
from fx_passes.rewriting.rule import Rule
from fx_passes.tracing.kernel_operator import KernelOperator
from fx_passes.tracing.traced_call import TracedCall, trace_call

__all__ = [
    "DiffObserver",
    "DumpObserver",
    "FingerprintError",
    "FunctionPass",
    "FxPassesError",
    "GraphBuilder",
    "GraphPass",
    "KernelOperator",
    "Match",
    "MatchRecord",
    "NearMiss",
    "NoMatch",
    "NormalizePass",
    "PassError",
    "PassObserver",
    "PassReport",
    "PassSelection",
    "Pipeline",
    "PipelineError",
    "PipelineResult",
    "Report",
    "Rule",
    "RuleError",
    "RulePass",
    "RuleReport",
    "TimingObserver",
    "TokenRange",
    "TraceError",
    "TracedCall",
    "VerifyObserver",
    "__version__",
    "apply_rules",
    "default_npu_pipeline",
    "label",
    "normalize_graph",
    "trace_call",
]
