"""The pipeline that raises a plain model and fuses the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.fusions.activations.gated_halves import fuse_geglu, fuse_swiglu
from fx_passes.graph_pass import NormalizePass, RulePass
from fx_passes.npu_pipeline import default_npu_pipeline
from fx_passes.pipeline import Pipeline
from fx_passes.raising.attention.attention import raise_attention
from fx_passes.raising.attention.sink_attention import raise_sink_attention
from fx_passes.raising.attention.spelt_attention import spelt_attention
from fx_passes.raising.gated_pair import raise_geglu, raise_swiglu
from fx_passes.raising.norms.rms_norm import raise_rms_norm
from fx_passes.raising.norms.spelt_norm import spelt_rms_norm
from fx_passes.raising.rotary.rotary import raise_rotary

if TYPE_CHECKING:
    from fx_passes.graph_pass import GraphPass


def raising_pipeline(*, soc: str = "") -> Pipeline:
    """Return the pipeline that raises a plain model to `npu::` operators and then fuses them.

    It normalises, raises (pass `raise`), and then runs the passes of `default_npu_pipeline`, of
    which `share_equal_calls` leaves one mask for all attentions. Use it for Dynamo graphs; in ATen
    graphs attention is already decomposed, so only norms, RoPE and activations are raised.
    `.without(name)` omits a rule; see `raise_swiglu` for one that you may want to omit.

    Args:
        soc: See `default_npu_pipeline`.
    """
    rules = (
        spelt_rms_norm(),
        raise_rms_norm(),
        raise_rotary(),
        raise_sink_attention(),
        spelt_attention(),
        raise_attention(),
        # Halves of one tensor need no concatenation, so these have precedence.
        fuse_swiglu(),
        fuse_geglu(),
        raise_swiglu(),
        raise_geglu(),
    )
    raising: tuple[GraphPass, ...] = (
        NormalizePass(),
        RulePass(name="raise", rules=rules, after=("normalize",)),
    )
    known = {each.name for each in raising}
    fusions = default_npu_pipeline(soc=soc)
    return Pipeline(passes=(*raising, *(each for each in fusions.passes if each.name not in known)))
