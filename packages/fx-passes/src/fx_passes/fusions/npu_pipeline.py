"""The pipeline of all fusions for NPUs."""

from __future__ import annotations

from fx_passes.fusions.add_rms_norm import fuse_add_rms_norm
from fx_passes.fusions.add_rms_norm_dynamic_quant import fuse_add_rms_norm_dynamic_quant
from fx_passes.fusions.add_rms_norm_quant import fuse_add_rms_norm_quant
from fx_passes.fusions.noops import remove_noops
from fx_passes.fusions.split_qkv_rms_norm_rope import fuse_split_qkv_rms_norm_rope
from fx_passes.fusions.swiglu import fuse_swiglu
from fx_passes.graph_pass import NormalizePass, RulePass
from fx_passes.pipeline import Pipeline

__all__ = ["default_npu_pipeline"]


def default_npu_pipeline() -> Pipeline:
    """Return the pipeline of all fusions for NPUs; rules of wider patterns come first.

    Rules whose operators the process does not have are not tried, and the report says so. Use
    `.exact()` for bitwise equal rules only and `.without(name)` to leave a rule out.
    """
    rules = (
        fuse_split_qkv_rms_norm_rope(),
        fuse_add_rms_norm_dynamic_quant(),
        fuse_add_rms_norm_quant(),
        fuse_add_rms_norm(),
        fuse_swiglu(),
    )
    fusions = RulePass(name="npu_fusions", rules=rules, after=("normalize",))
    noops = RulePass(name="noops", rules=remove_noops(), after=("npu_fusions",))
    return Pipeline(passes=(NormalizePass(), fusions, noops))
