"""Operators that this package defines by an explicit call, and vendor kernels for them."""

from fx_passes.operators.vendor_kernel import QkvCall, VendorKernel

__all__ = ["QkvCall", "VendorKernel"]
