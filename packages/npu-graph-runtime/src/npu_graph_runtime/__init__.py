"""Capture and replay device graphs behind a small device seam."""

from npu_graph_runtime.__about__ import __version__

__all__ = ["__version__"]
