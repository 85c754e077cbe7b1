"""Fusions for NPUs, one rule a file."""

__all__: list[str] = []
