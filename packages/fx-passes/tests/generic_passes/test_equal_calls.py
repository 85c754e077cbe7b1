"""Calls that are equal in every layer are made once, if nobody can tell the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.generic_passes import ShareEqualCallsPass
from fx_passes.testing import assert_rewritten, assert_same_values, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

npu = torch.ops.npu
RECIPROCAL = torch.ops.aten.reciprocal.default


def pipeline() -> fx_passes.Pipeline:
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), ShareEqualCallsPass()))


def reciprocals(module: torch.fx.GraphModule) -> int:
    return len(module.graph.find_nodes(op="call_function", target=RECIPROCAL))


def quantized_layers(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    for _ in range(3):
        normed, _, residual = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        quantized = npu.npu_quantize(normed, scale, None, torch.qint8, -1, False)
        x = quantized.to(x.dtype)
    return x + residual


@pytest.mark.parametrize("level", ["dynamo", "aten"])
def test_scale_of_three_layers_is_inverted_once(level: str) -> None:
    module = capture_graph(
        quantized_layers,
        random_tensors((6, 64), (6, 64), (64,), (64,)),
        level=level,  # type: ignore[arg-type]
    )

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {"fuse_add_rms_norm_quant": 3})

    assert reciprocals(module) == 1


def test_scale_that_the_graph_of_aten_inverts_is_taken_as_it_was() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        normed = npu.npu_add_rms_norm(x, residual, weight, 1e-5)[0]
        out: Tensor = npu.npu_quantize(normed, 1.0 / scale, None, torch.qint8, -1, False)
        return out

    tensors = random_tensors((6, 64), (6, 64), (64,), (64,))
    module = capture_graph(function, tensors, level="aten")

    fx_passes.default_npu_pipeline().run(module)

    (fused,) = module.graph.find_nodes(
        op="call_function", target=npu.npu_add_rms_norm_quant.default
    )
    assert fused.args[3].op == "placeholder"
    assert reciprocals(module) == 0


def chains(x: Tensor) -> Tensor:
    first = torch.reciprocal(x.unsqueeze(0)) * 2
    return first + torch.reciprocal(x.unsqueeze(0)) * 3


def written_between(x: Tensor) -> Tensor:
    scale = x * 2
    first = torch.reciprocal(scale) * 2
    scale.add_(1)
    return first + torch.reciprocal(scale)


def written_result(x: Tensor) -> Tensor:
    first, second = torch.reciprocal(x), torch.reciprocal(x)
    first.add_(1)
    return first * second


def both_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.reciprocal(x), torch.reciprocal(x)


@pytest.mark.parametrize(
    ("function", "left"),
    [(chains, 1), (written_between, 2), (written_result, 2), (both_returned, 2)],
)
def test_calls_are_shared_where_it_cannot_show(
    function: Callable[[Tensor], object], left: int
) -> None:
    (x,) = random_tensors((4, 4), dtype=torch.float32, device="cpu")
    module = capture_graph(function, [x])

    fx_passes.normalize_graph(module)
    result = pipeline().run(module)

    assert reciprocals(module) == left
    assert result.modified == (left == 1)
    expected = function(x)
    flat = expected if isinstance(expected, tuple) else (expected,)
    assert_same_values(tuple(module(x)), flat)
    assert not pipeline().run(module).modified
