"""Fusions of the heads of attention: split, norms and rotation, products for each head."""
