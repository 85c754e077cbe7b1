"""Fusions across ranks: communication and the operators next to it."""
