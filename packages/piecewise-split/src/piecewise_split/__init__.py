"""Split an FX graph at named operators and stitch the pieces into one flat function."""

from piecewise_split.__about__ import __version__

__all__ = ["__version__"]
