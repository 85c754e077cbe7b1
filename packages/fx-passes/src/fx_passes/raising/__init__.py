"""Raises plain models: rewrites plain torch code into `npu::` operators."""

from fx_passes.raising.attention.attention import raise_attention
from fx_passes.raising.attention.sink_attention import raise_sink_attention
from fx_passes.raising.attention.spelt_attention import spelt_attention
from fx_passes.raising.gated_pair import raise_geglu, raise_swiglu
from fx_passes.raising.model_raising import RaisingReport, RaisingResult, Site, raise_model
from fx_passes.raising.norms.rms_norm import raise_rms_norm
from fx_passes.raising.norms.spelt_norm import spelt_rms_norm
from fx_passes.raising.raising_pipeline import raising_pipeline
from fx_passes.raising.rotary.rotary import raise_rotary
from fx_passes.raising.sites import SITE_KINDS, SiteKind, find_sites

__all__ = [
    "SITE_KINDS",
    "RaisingReport",
    "RaisingResult",
    "Site",
    "SiteKind",
    "find_sites",
    "raise_attention",
    "raise_geglu",
    "raise_model",
    "raise_rms_norm",
    "raise_rotary",
    "raise_sink_attention",
    "raise_swiglu",
    "raising_pipeline",
    "spelt_attention",
    "spelt_rms_norm",
]
