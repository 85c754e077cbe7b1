"""Fuse operators in an FX graph: a linear-time rule engine, a pass pipeline and NPU fusions."""

from fx_passes.__about__ import __version__
from fx_passes.errors import (
    ConditionError,
    ConvergenceError,
    FingerprintError,
    FxPassesError,
    ObserverError,
    PassError,
    PatternError,
    PipelineError,
    RuleError,
)
from fx_passes.fusions.add_rms_norm import fuse_add_rms_norm
from fx_passes.fusions.add_rms_norm_dynamic_quant import fuse_add_rms_norm_dynamic_quant
from fx_passes.fusions.add_rms_norm_quant import fuse_add_rms_norm_quant
from fx_passes.fusions.dynamic_mx_quant import (
    fuse_add_rms_norm_dynamic_mx_quant,
    fuse_rms_norm_dynamic_mx_quant,
    fuse_swiglu_mx_quant,
)
from fx_passes.fusions.equal_calls import ShareEqualCallsPass
from fx_passes.fusions.folded_constants import FoldConstantsPass
from fx_passes.fusions.gathered_shard import remove_gather_of_own_shard
from fx_passes.fusions.geglu import fuse_geglu
from fx_passes.fusions.matmul_all_reduce import fuse_matmul_all_reduce
from fx_passes.fusions.multiply_add import fuse_multiply_add
from fx_passes.fusions.noops import remove_double_reciprocal, remove_noops
from fx_passes.fusions.npu_pipeline import default_npu_pipeline
from fx_passes.fusions.parallel_group import ParallelGroup
from fx_passes.fusions.rms_norm_quant import fuse_rms_norm_quant
from fx_passes.fusions.sequence_parallel import shard_all_reduce_norm
from fx_passes.fusions.split_qkv_rms_norm_cache import (
    fuse_split_qkv_rms_norm_mrope,
    fuse_split_qkv_rms_norm_rotary_embedding,
)
from fx_passes.fusions.split_qkv_rms_norm_rope import fuse_split_qkv_rms_norm_rope
from fx_passes.fusions.swiglu import fuse_swiglu
from fx_passes.fusions.swiglu_quant import fuse_swiglu_dynamic_quant, fuse_swiglu_quant
from fx_passes.fusions.vllm_ascend_forms import vllm_ascend_forms
from fx_passes.graph_builder import GraphBuilder
from fx_passes.graph_pass import Condition, FunctionPass, GraphPass, NormalizePass, RulePass
from fx_passes.match import Match, NoMatch
from fx_passes.normalize import normalize_graph
from fx_passes.observers import DiffObserver, DumpObserver, TimingObserver, VerifyObserver
from fx_passes.operators.split_qkv_rms_norm_rope import define_operators
from fx_passes.operators.vendor_kernel import KNOWN_KERNELS, QkvCall, QkvHeads, VendorKernel
from fx_passes.pass_selection import PassSelection, TokenRange
from fx_passes.pattern import label
from fx_passes.pipeline import PassObserver, Pipeline, PipelineResult
from fx_passes.raising.attention import raise_attention
from fx_passes.raising.geglu import raise_geglu
from fx_passes.raising.model_raising import RaisingResult, raise_model
from fx_passes.raising.raising_pipeline import raising_pipeline
from fx_passes.raising.raising_report import RaisingReport, Site
from fx_passes.raising.rms_norm import raise_rms_norm
from fx_passes.raising.rotary import raise_rotary
from fx_passes.raising.swiglu import raise_swiglu
from fx_passes.replacement_rule import MatchForExtraCheck, rule_from_replacement
from fx_passes.report import MatchRecord, NearMiss, PassReport, Report, RuleReport
from fx_passes.rewriter import apply_rules
from fx_passes.rule import PatternSource, Rule

__all__ = [
    "KNOWN_KERNELS",
    "Condition",
    "ConditionError",
    "ConvergenceError",
    "DiffObserver",
    "DumpObserver",
    "FingerprintError",
    "FoldConstantsPass",
    "FunctionPass",
    "FxPassesError",
    "GraphBuilder",
    "GraphPass",
    "Match",
    "MatchForExtraCheck",
    "MatchRecord",
    "NearMiss",
    "NoMatch",
    "NormalizePass",
    "ObserverError",
    "ParallelGroup",
    "PassError",
    "PassObserver",
    "PassReport",
    "PassSelection",
    "PatternError",
    "PatternSource",
    "Pipeline",
    "PipelineError",
    "PipelineResult",
    "QkvCall",
    "QkvHeads",
    "RaisingReport",
    "RaisingResult",
    "Report",
    "Rule",
    "RuleError",
    "RulePass",
    "RuleReport",
    "ShareEqualCallsPass",
    "Site",
    "TimingObserver",
    "TokenRange",
    "VendorKernel",
    "VerifyObserver",
    "__version__",
    "apply_rules",
    "default_npu_pipeline",
    "define_operators",
    "fuse_add_rms_norm",
    "fuse_add_rms_norm_dynamic_mx_quant",
    "fuse_add_rms_norm_dynamic_quant",
    "fuse_add_rms_norm_quant",
    "fuse_geglu",
    "fuse_matmul_all_reduce",
    "fuse_multiply_add",
    "fuse_rms_norm_dynamic_mx_quant",
    "fuse_rms_norm_quant",
    "fuse_split_qkv_rms_norm_mrope",
    "fuse_split_qkv_rms_norm_rope",
    "fuse_split_qkv_rms_norm_rotary_embedding",
    "fuse_swiglu",
    "fuse_swiglu_dynamic_quant",
    "fuse_swiglu_mx_quant",
    "fuse_swiglu_quant",
    "label",
    "normalize_graph",
    "raise_attention",
    "raise_geglu",
    "raise_model",
    "raise_rms_norm",
    "raise_rotary",
    "raise_swiglu",
    "raising_pipeline",
    "remove_double_reciprocal",
    "remove_gather_of_own_shard",
    "remove_noops",
    "rule_from_replacement",
    "shard_all_reduce_norm",
    "vllm_ascend_forms",
]
