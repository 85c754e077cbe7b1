"""Passes that need no kernel: no-ops, repeated calls, constants and copies."""

from fx_passes.generic_passes.equal_calls import ShareEqualCallsPass
from fx_passes.generic_passes.folded_constants import FoldConstantsPass
from fx_passes.generic_passes.forwarded_copies import ForwardCopiesPass
from fx_passes.generic_passes.multiply_add import fuse_multiply_add
from fx_passes.generic_passes.noops import remove_double_reciprocal, remove_noops
from fx_passes.generic_passes.prepared_values import PreparedValues, prepared_values_of

__all__ = [
    "FoldConstantsPass",
    "ForwardCopiesPass",
    "PreparedValues",
    "ShareEqualCallsPass",
    "fuse_multiply_add",
    "prepared_values_of",
    "remove_double_reciprocal",
    "remove_noops",
]
