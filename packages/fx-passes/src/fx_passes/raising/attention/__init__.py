"""Attention without a paged cache, raised to the fused infer operator."""
