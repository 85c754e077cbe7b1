"""Raising of plain models: what a model spells with torch alone becomes `npu::` operators."""

from fx_passes.raising.attention import raise_attention
from fx_passes.raising.geglu import raise_geglu
from fx_passes.raising.model_raising import RaisingResult, raise_model
from fx_passes.raising.raising_pipeline import raising_pipeline
from fx_passes.raising.raising_report import RaisingReport, Site
from fx_passes.raising.rms_norm import raise_rms_norm
from fx_passes.raising.rotary import raise_rotary
from fx_passes.raising.sites import SITE_KINDS, SiteKind, find_sites
from fx_passes.raising.swiglu import raise_swiglu

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
    "raise_swiglu",
    "raising_pipeline",
]
