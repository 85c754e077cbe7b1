"""A simulated CANN: the unmodified torch_npu runs on a CPU."""

from cann_sim.__about__ import __version__

__all__ = ["__version__"]
