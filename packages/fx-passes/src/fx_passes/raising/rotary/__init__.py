"""Rotary position embeddings in every spelling, raised to `npu::npu_rotary_mul`."""
