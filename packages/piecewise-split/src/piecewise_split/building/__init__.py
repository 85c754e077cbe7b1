"""Builds pieces from a plan, and one flat function from pieces."""
