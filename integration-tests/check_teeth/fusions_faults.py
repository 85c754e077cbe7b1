"""Faults of fusions: the fused operator computes something else than what it replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from check_teeth.operators_faults import computes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from check_teeth.fault import Fault


def _off(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    if value.is_floating_point():
        return value + value.abs().max() / 16
    return (value.int() + 20).clamp(-128, 127).to(value.dtype)


_FUSED = (
    ("add-rms-norm", "npu_add_rms_norm"),
    ("add-rms-norm-cast", "npu_add_rms_norm_cast"),
    ("add-rms-norm-view-cast", "npu_add_rms_norm_cast"),
    ("add-rms-norm-quant", "npu_add_rms_norm_quant"),
    ("add-rms-norm-two-quants", "npu_add_rms_norm_quant"),
    ("add-rms-norm-dynamic-quant", "npu_add_rms_norm_dynamic_quant"),
    ("rms-norm-quant", "npu_rms_norm_quant"),
    ("clipped-swiglu", "npu_clipped_swiglu"),
    ("swiglu", "npu_swiglu"),
    ("geglu", "npu_geglu"),
    ("swiglu-quant", "npu_swiglu_quant npu_dequant_swiglu_quant"),
    ("swiglu-dynamic-quant", "npu_swiglu_quant npu_dequant_swiglu_quant"),
    ("batch-matmul-transpose", "npu_transpose_batchmatmul"),
    ("multiply-add", "addcmul"),
    ("split-qkv-rms-norm-rope", "split_qkv_rms_norm_rope"),
    ("split-qkv-rms-norm-mrope", "split_qkv_rms_norm_rope"),
)

FUSIONS: Mapping[str, Sequence[Fault]] = {
    f"fusions.{name}": [computes(operators, "is off by a sixteenth", _off)]
    for name, operators in _FUSED
}
