"""Gated activations, raised to kernels of both halves side by side."""
