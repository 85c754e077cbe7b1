"""Operators that this package defines by an explicit call, and vendor kernels for them."""

from fx_passes.operators.split_qkv_rms_norm_rope import define_operators
from fx_passes.operators.vendor_kernel import (
    KNOWN_KERNELS,
    AngleCache,
    QkvCall,
    QkvHeads,
    VendorKernel,
)

__all__ = [
    "KNOWN_KERNELS",
    "AngleCache",
    "QkvCall",
    "QkvHeads",
    "VendorKernel",
    "define_operators",
]
