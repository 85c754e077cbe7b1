"""Two static quantisations of one norm, as latent attention has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
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

RULE = "fuse_add_rms_norm_two_quants"
TOKENS, HIDDEN = 6, 64
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu


def quantized_twice(*, bias: bool, joined: bool = True) -> Callable[..., tuple[Tensor, ...]]:
    def function(
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        beta: Tensor,
        scale: Tensor,
        offset: Tensor,
        other: Tensor,
    ) -> tuple[Tensor, ...]:
        if joined:
            normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        else:
            total = x + residual
            normed, _ = npu.npu_rms_norm(total, weight, 1e-5)
        rows = normed + beta if bias else normed
        first = npu.npu_quantize(rows, scale, offset, torch.qint8, -1)
        second = npu.npu_quantize(rows, other, None, torch.qint8, -1)
        return first, second, total

    return function


def inputs(
    dtype: torch.dtype = torch.bfloat16, device: str = "meta", width: int = HIDDEN
) -> list[Tensor]:
    shapes = (TOKENS, HIDDEN), (TOKENS, HIDDEN), (HIDDEN,), (HIDDEN,)
    scale = torch.full((HIDDEN,), 0.0625, dtype=dtype, device=device)
    offset = torch.full((HIDDEN,), 3, dtype=dtype, device=device)
    other = torch.full((width,), 0.125, dtype=dtype, device=device)
    return [*random_tensors(*shapes, dtype=dtype, device=device), scale, offset, other]


def kernels(module: torch.fx.GraphModule) -> list[str]:
    targets = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [target for target in targets if target.startswith("npu.")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_both_are_one_kernel(bias: bool, joined: bool, level: GraphLevel) -> None:
    function = quantized_twice(bias=bias, joined=joined)
    module = capture_graph(function, inputs(), level=level, dynamic={0: 0, 1: 0})

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})

    assert kernels(module) == ["npu.npu_add_rms_norm_quant.default"]


@pytest.mark.parametrize("bias", [False, True])
def test_values_are_those_of_the_two(bias: bool) -> None:
    tensors = inputs(device="npu")
    function = quantized_twice(bias=bias)
    module = capture_graph(function, tensors)
    expected = function(*tensors)
    assert not torch.equal(expected[0].cpu(), expected[1].cpu())

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})

    names = ("x", "residual", "weight", "beta", "scale", "offset", "other")
    given = dict(zip(names, tensors, strict=True))
    used = [given[node.name[2:-1]] for node in module.graph.find_nodes(op="placeholder")]
    assert_same_values(module(*used), expected, roundings=3, dtype=torch.bfloat16)


def test_one_quantisation_is_not_taken_for_two() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, _, scale, offset, _ = tensors
        normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        return npu.npu_quantize(normed, scale, offset, torch.qint8, -1), total

    module = capture_graph(function, inputs())

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {"fuse_add_rms_norm_quant": 1})


def test_second_scale_of_another_shape_is_left_alone() -> None:
    module = capture_graph(quantized_twice(bias=False), inputs(width=1))

    assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, "`scale2` [1]")
