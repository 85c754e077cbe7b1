"""The part of pyACL, CANN's own Python package, that engines call besides torch_npu."""

from acl import rt  # type: ignore[import-not-found]

__all__ = ["rt"]
