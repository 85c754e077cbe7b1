"""Passes that know no kernel: what changes nothing, what is computed twice, what is constant."""

from fx_passes.generic_passes.equal_calls import ShareEqualCallsPass
from fx_passes.generic_passes.folded_constants import FoldConstantsPass
from fx_passes.generic_passes.multiply_add import fuse_multiply_add
from fx_passes.generic_passes.noops import remove_double_reciprocal, remove_noops

__all__ = [
    "FoldConstantsPass",
    "ShareEqualCallsPass",
    "fuse_multiply_add",
    "remove_double_reciprocal",
    "remove_noops",
]
