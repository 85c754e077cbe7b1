"""Fusions of what stands in front of attention: split, norms and rotation of the heads."""
