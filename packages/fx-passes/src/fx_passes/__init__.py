"""Fuse operators in an FX graph: a linear-time rule engine, a pass pipeline and NPU fusions."""

from fx_passes.__about__ import __version__

__all__ = ["__version__"]
