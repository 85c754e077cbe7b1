"""Rewrite the host arguments of attention inside captured graphs, every step, without a host synchronisation."""

from attn_update.__about__ import __version__

__all__ = ["__version__"]
