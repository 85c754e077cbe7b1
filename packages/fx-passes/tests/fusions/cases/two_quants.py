"""Two static quantisations of one norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fusions.fusion_case import FusionCase, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TWO_QUANTS_CASES"]

_HIDDEN = 64


def _inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    shapes = (tokens, _HIDDEN), (tokens, _HIDDEN), (_HIDDEN,)
    scales = [torch.full((_HIDDEN,), size, dtype=dtype, device=device) for size in (0.0625, 0.125)]
    return [*random_tensors(*shapes, dtype=dtype, device=device), *scales]


def _one_scale(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    *tensors, last = _inputs(dtype, device, tokens)
    return [*tensors, last[:1]]


def _quantized_twice(
    x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, other: Tensor
) -> tuple[Tensor, ...]:
    npu = torch.ops.npu
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
    first = npu.npu_quantize(normed, scale, None, torch.qint8, -1)
    return first, npu.npu_quantize(normed, other, None, torch.qint8, -1), total


TWO_QUANTS_CASES = (
    FusionCase(
        name="joined",
        rule="fuse_add_rms_norm_two_quants",
        function=_quantized_twice,
        inputs=_inputs,
        tokens={0: 0, 1: 0},
        roundings=3,
        near_misses=(NearMissCase(name="one_scale", inputs=_one_scale, reason="`scale2` [1]"),),
    ),
)
