"""Fusions of gated activations."""
