"""Fusions of several ranks: communication, and what stands beside it."""
