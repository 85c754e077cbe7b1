"""Residual add + RMSNorm without quantisation."""

from __future__ import annotations

import torch
from torch import Tensor

from fusions.fusion_case import FusionCase, NearMissCase
from fx_passes.testing import random_tensors

__all__ = ["NORM_CASES", "norm_inputs"]

_HIDDEN = 64


def norm_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    """Return x and residual [tokens, 64] and a weight [64]."""
    shapes = ((tokens, _HIDDEN), (tokens, _HIDDEN), (_HIDDEN,))
    return random_tensors(*shapes, dtype=dtype, device=device)


def _broadcast_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    x, _, weight = norm_inputs(dtype, device, tokens)
    return [x, torch.empty_like(weight), weight]


def _wide_weight(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    x, residual, weight = norm_inputs(dtype, device, tokens)
    return [x, residual, weight.float()]


def _add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return torch.ops.npu.npu_rms_norm(total, weight, 1e-5)[0], total


def _turned_round(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normed, rstd = torch.ops.npu.npu_rms_norm(residual + x, weight)
    return normed, rstd


def _scaled_residual(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    total = torch.add(x, residual, alpha=2)
    normed: Tensor = torch.ops.npu.npu_rms_norm(total, weight)[0]
    return normed


NORM_CASES = (
    FusionCase(
        name="sum_used",
        rule="fuse_add_rms_norm",
        function=_add_norm,
        inputs=norm_inputs,
        dtypes=(torch.bfloat16, torch.float16, torch.float32),
        tokens={0: 0, 1: 0},
        # A kernel may leave out the rounding of the sum, and rounds its own result.
        roundings=2,
        near_misses=(
            NearMissCase(name="broadcast", inputs=_broadcast_inputs, reason="does not broadcast"),
            NearMissCase(name="wide_weight", inputs=_wide_weight, reason="takes one dtype"),
            NearMissCase(name="alpha", function=_scaled_residual, reason="expected 1, found 2"),
            NearMissCase(name="float64", dtype=torch.float64, reason="the kernel takes"),
        ),
    ),
    FusionCase(
        name="rstd_used",
        rule="fuse_add_rms_norm",
        function=_turned_round,
        inputs=norm_inputs,
        tokens={0: 0, 1: 0},
        roundings=2,
    ),
)
