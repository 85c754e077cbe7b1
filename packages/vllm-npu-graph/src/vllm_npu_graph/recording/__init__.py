"""Attention that this package records while the engine captures, in every release."""
