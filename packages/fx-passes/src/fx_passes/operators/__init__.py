"""Operators that this package defines by an explicit call, and vendor kernels for them."""

__all__: list[str] = []
