"""The pipeline of all fusions for NPUs."""

from __future__ import annotations

from fx_passes.fusions.activations.clipped_swiglu import fuse_clipped_swiglu
from fx_passes.fusions.activations.gated_halves import fuse_geglu, fuse_swiglu
from fx_passes.fusions.activations.swiglu_quant import (
    fuse_swiglu_dynamic_quant,
    fuse_swiglu_mx_quant,
    fuse_swiglu_quant,
)
from fx_passes.fusions.heads.batch_matmul_transpose import fuse_batch_matmul_transpose
from fx_passes.fusions.heads.split_qkv_rms_norm_cache import (
    fuse_split_qkv_rms_norm_mrope,
    fuse_split_qkv_rms_norm_rotary_embedding,
)
from fx_passes.fusions.heads.split_qkv_rms_norm_rope import fuse_split_qkv_rms_norm_rope
from fx_passes.fusions.norms.add_rms_norm import fuse_add_rms_norm
from fx_passes.fusions.norms.add_rms_norm_cast import fuse_add_rms_norm_cast
from fx_passes.fusions.norms.add_rms_norm_dynamic_quant import fuse_add_rms_norm_dynamic_quant
from fx_passes.fusions.norms.add_rms_norm_quant import (
    fuse_add_rms_norm_quant,
    fuse_add_rms_norm_two_quants,
)
from fx_passes.fusions.norms.rms_norm_mx_quant import (
    fuse_add_rms_norm_dynamic_mx_quant,
    fuse_rms_norm_dynamic_mx_quant,
)
from fx_passes.fusions.norms.rms_norm_quant import fuse_rms_norm_quant
from fx_passes.generic_passes.equal_calls import ShareEqualCallsPass
from fx_passes.generic_passes.folded_constants import FoldConstantsPass
from fx_passes.generic_passes.forwarded_copies import ForwardCopiesPass
from fx_passes.generic_passes.multiply_add import fuse_multiply_add
from fx_passes.generic_passes.noops import remove_double_reciprocal, remove_noops
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
        fuse_split_qkv_rms_norm_rope(soc=soc),
        fuse_split_qkv_rms_norm_mrope(soc=soc),
        fuse_split_qkv_rms_norm_rotary_embedding(soc=soc),
        fuse_add_rms_norm_dynamic_mx_quant(),
        fuse_add_rms_norm_dynamic_quant(),
        fuse_add_rms_norm_two_quants(),
        fuse_add_rms_norm_quant(),
        # Behind those that keep no norm to cast, before the one that leaves the cast.
        *fuse_add_rms_norm_cast(),
        fuse_add_rms_norm(),
        fuse_rms_norm_dynamic_mx_quant(),
        fuse_rms_norm_quant(soc=soc),
        # Before what begins with an `npu_swiglu` of clipped parts.
        fuse_clipped_swiglu(soc=soc),
        # Before what begins with the operators that these two build.
        fuse_swiglu(),
        fuse_geglu(),
        fuse_swiglu_mx_quant(),
        fuse_swiglu_dynamic_quant(),
        fuse_swiglu_quant(),
        fuse_batch_matmul_transpose(),
        fuse_multiply_add(),
    )
    fusions = RulePass(name="npu_fusions", rules=rules, after=("normalize",))
    noops = (*remove_noops(), remove_double_reciprocal())
    return Pipeline(
        passes=(
            NormalizePass(),
            ForwardCopiesPass(),
            fusions,
            ShareEqualCallsPass(),
            FoldConstantsPass(),
            RulePass(name="noops", rules=noops, after=("npu_fusions",)),
        )
    )
