"""The pipeline of all fusions for NPUs."""

from __future__ import annotations

from fx_passes import fusions
from fx_passes.generic_passes import (
    FoldConstantsPass,
    ForwardCopiesPass,
    ShareEqualCallsPass,
    fuse_multiply_add,
    remove_double_reciprocal,
    remove_noops,
)
from fx_passes.graph_pass import NormalizePass, RulePass
from fx_passes.pipeline import Pipeline


def default_npu_pipeline(*, soc: str = "") -> Pipeline:
    """Return the pipeline of all fusions for NPUs; rules of wider patterns come first.

    Rules whose operators the process does not have are not tried, and the report says so. Use
    `.exact()` for bitwise equal rules only and `.without(name)` to leave a rule out.

    Args:
        soc: Name of the device as `torch.npu.get_device_name()` gives it, for kernels that not all
            devices have; empty for those that all have.
    """
    rules = (
        fusions.fuse_split_qkv_rms_norm_rope(soc=soc),
        fusions.fuse_split_qkv_rms_norm_mrope(soc=soc),
        fusions.fuse_split_qkv_rms_norm_rotary_embedding(soc=soc),
        fusions.fuse_add_rms_norm_dynamic_mx_quant(),
        fusions.fuse_add_rms_norm_dynamic_quant(),
        fusions.fuse_add_rms_norm_two_quants(),
        fusions.fuse_add_rms_norm_quant(),
        # Behind those that keep no norm to cast, before the one that leaves the cast.
        *fusions.fuse_add_rms_norm_cast(),
        fusions.fuse_add_rms_norm(),
        fusions.fuse_rms_norm_dynamic_mx_quant(),
        fusions.fuse_rms_norm_quant(soc=soc),
        # Before what begins with an `npu_swiglu` of clipped parts.
        fusions.fuse_clipped_swiglu(soc=soc),
        # Before what begins with the operators that these two build.
        fusions.fuse_swiglu(),
        fusions.fuse_geglu(),
        fusions.fuse_swiglu_mx_quant(),
        fusions.fuse_swiglu_dynamic_quant(),
        fusions.fuse_swiglu_quant(),
        fusions.fuse_batch_matmul_transpose(),
        fuse_multiply_add(),
    )
    fused = RulePass(name="npu_fusions", rules=rules, after=("normalize",))
    noops = (*remove_noops(), remove_double_reciprocal())
    return Pipeline(
        passes=(
            NormalizePass(),
            ForwardCopiesPass(),
            fused,
            ShareEqualCallsPass(),
            FoldConstantsPass(),
            RulePass(name="noops", rules=noops, after=("npu_fusions",)),
        )
    )
