"""Version of the distribution; the only place it is written."""

__version__ = "0.1.0"
