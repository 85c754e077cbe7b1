"""Finds work that cannot be captured, in an eager run."""
