"""Kernels that the engine launches beside torch's dispatcher, which traced steps would not show."""

from __future__ import annotations

from types import MappingProxyType

KERNELS = MappingProxyType(
    {
        "sgl_kernel_npu.norm.split_qkv_rmsnorm_rope.split_qkv_rmsnorm_rope": (
            "(Tensor qkv, Tensor sin, Tensor cos, int q_size, int kv_size, int head_dim, *, "
            "float eps=0., Tensor? q_weight=None, Tensor? k_weight=None, Tensor? q_bias=None, "
            "Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
        ),
        "sgl_kernel_npu.norm.l1_norm.l1_norm": "(Tensor input) -> Tensor",
        "sglang.kernels.ops.activation.softcap.cast_to_float32_logits": (
            "(Tensor logits, Tensor(a!) output) -> ()"
        ),
    }
)
"""The functions that launch them, with the schemas that `fx_passes.KernelOperator` takes."""
