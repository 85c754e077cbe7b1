"""The probes of fusions: one for each rule of the default pipeline that makes a fused operator."""

from __future__ import annotations

from npu_graph_check.probe import Probe

# Named here, since the forms are imported with torch; a test compares both.
_RULES = (
    "fuse_add_rms_norm",
    "fuse_add_rms_norm_cast",
    "fuse_add_rms_norm_view_cast",
    "fuse_add_rms_norm_quant",
    "fuse_add_rms_norm_two_quants",
    "fuse_add_rms_norm_dynamic_quant",
    "fuse_rms_norm_quant",
    "fuse_clipped_swiglu",
    "fuse_swiglu",
    "fuse_geglu",
    "fuse_swiglu_quant",
    "fuse_swiglu_dynamic_quant",
    "fuse_batch_matmul_transpose",
    "fuse_multiply_add",
    "fuse_split_qkv_rms_norm_rope",
    "fuse_split_qkv_rms_norm_mrope",
)

FUSIONS = tuple(
    Probe(
        id=f"fusions.{rule.removeprefix('fuse_').replace('_', '-')}",
        title=f"`{rule}` gives what it replaces, within roundings of the dtype",
        run="npu_graph_check.probes.fusions.fused_graph:fused_graph",
        argument=rule,
        limit_s=120,
    )
    for rule in _RULES
)
