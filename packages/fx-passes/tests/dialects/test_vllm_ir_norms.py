"""Norms of vLLM's own operators, `vllm_ir`, before the fusions for NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from dialects.dialect_pipeline import pipeline, targets
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("engine_operators")

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
TOKENS, HIDDEN = 6, 64
ir, npu = torch.ops.vllm_ir, torch.ops.npu


def norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor]:
    del residual
    return (ir.rms_norm(x, weight, 1e-5),)


def add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normed, total = ir.fused_add_rms_norm(x, residual, weight, 1e-5)
    return normed, total


def add_norm_of_all_columns(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normed, total = ir.fused_add_rms_norm(x, residual, weight, 1e-5, variance_size=HIDDEN)
    return normed, total


def quantized(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    normed, total = ir.fused_add_rms_norm(x, residual, weight, 1e-5)
    rows, scale = npu.npu_dynamic_quant(normed)
    return rows, scale, total


def inputs(dtype: torch.dtype = torch.bfloat16, device: str = "meta") -> list[Tensor]:
    shapes = (TOKENS, HIDDEN), (TOKENS, HIDDEN), (HIDDEN,)
    return list(random_tensors(*shapes, dtype=dtype, device=device))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("function", "rule", "target"),
    [
        (norm, "vllm_ir_rms_norm", "npu.npu_rms_norm.default"),
        (add_norm, "vllm_ir_add_rms_norm", "npu.npu_add_rms_norm.default"),
        (add_norm_of_all_columns, "vllm_ir_add_rms_norm", "npu.npu_add_rms_norm.default"),
    ],
)
def test_norm_becomes_the_operator_that_fusions_match(
    function: Callable[..., object], rule: str, target: str, level: GraphLevel
) -> None:
    module = capture_graph(function, inputs(), level=level, dynamic={0: 0, 1: 0})

    assert_rewritten(pipeline(), module, {rule: 1})

    assert targets(module) == [target]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [norm, add_norm])
def test_norm_gives_the_values_of_the_engine(
    function: Callable[..., tuple[Tensor, ...]], dtype: torch.dtype
) -> None:
    tensors = inputs(dtype, device="npu")
    module = capture_graph(function, tensors)
    expected = function(*tensors)

    rule = "vllm_ir_rms_norm" if function is norm else "vllm_ir_add_rms_norm"
    assert_rewritten(pipeline(), module, {rule: 1})

    used = [tensors[0], tensors[2]] if function is norm else tensors
    # The engine rounds before it multiplies by the weight, and again after it.
    assert_same_values(module(*used), expected, roundings=2, dtype=dtype)


def test_norm_and_quantisation_after_it_are_one_kernel() -> None:
    module = capture_graph(quantized, inputs())

    report = pipeline().run(module).report

    assert "npu.npu_add_rms_norm_dynamic_quant.default" in targets(module), str(report)
    assert len(targets(module)) == 1


def without_weight(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    del residual, weight
    return ir.rms_norm(x, None, 1e-5)  # type: ignore[no-any-return]


def of_half_the_columns(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return ir.fused_add_rms_norm(x, residual, weight, 1e-5, HIDDEN // 2)[0]  # type: ignore[no-any-return]


def with_a_wide_weight(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    del residual
    return ir.rms_norm(x, weight.float(), 1e-5)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("function", "rule", "reason"),
    [
        (without_weight, "vllm_ir_rms_norm", "the norm has no weight"),
        (of_half_the_columns, "vllm_ir_add_rms_norm", "that of 32 of 64 columns"),
        (with_a_wide_weight, "vllm_ir_rms_norm", "`x` has dtype torch.bfloat16 and `weight`"),
    ],
)
def test_norm_that_the_kernel_does_not_compute_is_a_near_miss(
    function: Callable[..., object], rule: str, reason: str
) -> None:
    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, rule, reason)
