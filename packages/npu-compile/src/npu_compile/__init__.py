"""Compile a model for NPU graph execution: fusion, splitting, capture, replay and attention update."""

from npu_compile.__about__ import __version__

__all__ = ["__version__"]
