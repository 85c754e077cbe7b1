"""The default pipeline where heads are fused into the operator of this package, not a vendor's."""

from __future__ import annotations

from dataclasses import replace

from fx_passes import Pipeline, RulePass, default_npu_pipeline
from fx_passes.fusions import fuse_split_qkv_rms_norm_rope

__all__ = ["reference_pipeline"]


def reference_pipeline() -> Pipeline:
    """Return it; its rule fuses without any vendor kernel, which it would otherwise wait for."""
    pipeline = default_npu_pipeline()
    own = fuse_split_qkv_rms_norm_rope(kernels=())
    passes = tuple(
        replace(each, rules=tuple(own if rule.name == own.name else rule for rule in each.rules))
        if isinstance(each, RulePass)
        else each
        for each in pipeline.passes
    )
    return replace(pipeline, passes=passes)
