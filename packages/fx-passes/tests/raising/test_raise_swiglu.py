"""`silu(gate) * up` of two projections."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_passes
from fx_passes.raising import raise_swiglu, raising_pipeline
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

RULE = "raise_swiglu"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="raise", rules=(raise_swiglu(),))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def projected(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_projections_are_raised_with_equal_values(
    level: GraphLevel, dtype: torch.dtype
) -> None:
    tensors = random_tensors((6, 16), (32, 16), (32, 16), dtype=dtype, device="npu")
    module = capture_graph(projected, tensors, level=level)
    expected = (projected(*tensors),)

    assert_rewritten(pipeline(), module, {RULE: 1})

    # silu's result and the product are rounded, the kernel rounds once.
    assert_same_values(tuple(module(*tensors)), expected, roundings=2)


def test_symbolic_length_is_raised() -> None:
    module = capture_graph(projected, random_tensors((6, 16), (32, 16), (32, 16)), dynamic={0: 0})

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_halves_of_one_tensor_are_not_concatenated_again() -> None:
    def function(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate) * up

    module = capture_graph(function, random_tensors((6, 32)))

    assert_rewritten(raising_pipeline(), module, {"fuse_swiglu": 1})


def test_gate_that_broadcasts_is_left_alone() -> None:
    def function(x: Tensor, gate: Tensor) -> Tensor:
        return functional.silu(gate) * x

    module = capture_graph(function, random_tensors((6, 16), (6, 1)))

    assert_left_alone(pipeline(), module, RULE, "does not broadcast")


def test_activation_used_elsewhere_is_left_alone() -> None:
    def function(x: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        active = functional.silu(x)
        return active * up, active

    module = capture_graph(function, random_tensors((6, 16), (6, 16)))

    assert_left_alone(pipeline(), module, RULE, "inside the match is used by")


def test_gate_by_sigmoid_is_left_alone() -> None:
    def function(x: Tensor, up: Tensor) -> Tensor:
        return torch.sigmoid(x) * up

    module = capture_graph(function, random_tensors((6, 16), (6, 16)))

    assert not pipeline().run(module).report.matches()
