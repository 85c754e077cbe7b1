"""Per-token quantisation after the residual add + RMSNorm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    capture_graph,
    random_tensors,
)

RULE = "fuse_add_rms_norm_dynamic_quant"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu


def separate(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    quantized, scale = npu.npu_dynamic_quant(npu.npu_rms_norm(total, weight, 1e-5)[0])
    return quantized, scale, total


def joined(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, _, total = npu.npu_add_rms_norm(residual, x, weight, 1e-5)
    quantized, scale = npu.npu_dynamic_quant(normed)
    return quantized, scale, total


def smoothed(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, _, total = npu.npu_add_rms_norm(residual, x, weight, 1e-5)
    quantized, scale = npu.npu_dynamic_quant(normed, smooth_scales=weight)
    return quantized, scale, total


def without_sum(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    quantized, scale = npu.npu_dynamic_quant(npu.npu_rms_norm(x + residual, weight)[0])
    return quantized, scale


def inputs(dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    return random_tensors((6, 64), (6, 64), (64,), dtype=dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [separate, joined, smoothed, without_sum])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_form_is_fused(level: GraphLevel, function: object, dtype: torch.dtype) -> None:
    module = capture_graph(function, inputs(dtype), level=level)  # type: ignore[arg-type]

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})

    target = npu.npu_add_rms_norm_dynamic_quant.default
    (fused,) = module.graph.find_nodes(op="call_function", target=target)
    shapes = [tuple(value.shape) for value in fused.meta["val"]]
    assert shapes == [(6, 64), (0,), (6, 64), (6,), (0,)]
    assert fused.kwargs["output_mask"] == [True, False]


def test_other_quantisation_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        quantized, scale = npu.npu_dynamic_quant(normed, quant_mode="pertensor")
        return quantized, scale

    module = capture_graph(function, inputs())

    pipeline = fx_passes.default_npu_pipeline()
    assert_left_alone(pipeline, module, RULE, "expected 'pertoken', found 'pertensor'")


def test_smooth_scales_of_another_dtype_are_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, smooth: Tensor) -> Tensor:
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        out: Tensor = npu.npu_dynamic_quant(normed, smooth_scales=smooth)[0]
        return out

    smooth = torch.empty(64, dtype=torch.float16, device="meta")
    module = capture_graph(function, [*inputs(), smooth])

    pipeline = fx_passes.default_npu_pipeline()
    assert_left_alone(pipeline, module, RULE, "`weight` has dtype torch.bfloat16 and `smooth`")
