"""Norms written in plain torch, as torch.compile gives them, and what only looks like one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm
from fx_passes.raising import raise_rms_norm
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

RULE = "raise_rms_norm"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
EPSILON = 1e-6


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="raise", rules=raise_rms_norm())
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def llama(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def gemma(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return (normed * (1.0 + weight.float())).type_as(x)


def olmo(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean([-1], keepdim=True)
    return (weight * (torch.rsqrt(EPSILON + variance) * wide)).to(x.dtype)


FORMS = [llama, gemma, olmo]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FORMS)
def test_norm_of_every_form_is_raised_with_equal_values(
    level: GraphLevel, dtype: torch.dtype, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    tensors = random_tensors((6, 64), (64,), dtype=dtype, device="npu")
    module = capture_graph(function, tensors, level=level)
    expected = (function(*tensors),)

    report = assert_rewritten(pipeline(), module, {RULE: 1})

    assert report.matches(RULE)[0].literals["epsilon"] == repr(EPSILON)
    assert_same_values(tuple(module(*tensors)), expected, roundings=1)


@pytest.mark.parametrize("level", LEVELS)
def test_norm_of_a_float32_model_is_raised(level: GraphLevel) -> None:
    tensors = random_tensors((6, 64), (64,), dtype=torch.float32, device="npu")
    module = capture_graph(llama, tensors, level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert_same_values(tuple(module(*tensors)), (llama(*tensors),), roundings=4)


@pytest.mark.parametrize("function", FORMS)
def test_norm_of_symbolic_length_is_raised(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    module = capture_graph(function, random_tensors((6, 32), (32,)), dynamic={0: 0})

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_gemma_norm_keeps_the_offset_in_float32() -> None:
    module = capture_graph(gemma, random_tensors((6, 32), (32,)))

    assert_rewritten(pipeline(), module, {RULE: 1})

    (norm,) = module.graph.find_nodes(op="call_function", target=torch.ops.npu.npu_rms_norm.default)
    assert norm.args[1].meta["val"].dtype == torch.float32


def test_norm_then_added_fuses_with_the_residual() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return llama(total, weight), total

    module = capture_graph(function, random_tensors((6, 32), (6, 32), (32,)))
    rules = fx_passes.RulePass(name="raise", rules=(*raise_rms_norm(), *fuse_add_rms_norm()))
    both = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))

    assert_rewritten(both, module, {RULE: 1, "fuse_add_rms_norm": 1})


def epsilon_after_root(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True)) + EPSILON
    return weight * (wide * root).to(x.dtype)


def epsilon_after_square_root(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    root = torch.sqrt(wide.pow(2).mean(-1, keepdim=True)) + EPSILON
    return weight * (wide / root).to(x.dtype)


def over_another_dimension(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(0, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def over_two_dimensions(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean([0, 1], keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def of_cubes(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(3).mean(-1, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def of_another_tensor(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = (wide + 1).pow(2).mean(-1, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def in_float64(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float64)
    variance = wide.pow(2).mean(-1, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def to_another_dtype(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    return (weight * (wide * torch.rsqrt(variance + EPSILON))).to(torch.float16)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (epsilon_after_root, "epsilon is added to the root; the kernel adds it to the mean"),
        (epsilon_after_square_root, "epsilon is added to the root"),
        (over_another_dimension, "the mean is over the dimensions [0] of 2, not the last one"),
        (over_two_dimensions, "the mean is over the dimensions [0, 1] of 2"),
        (of_cubes, "expected 2, found 3"),
        (of_another_tensor, "expected a call of aten.to.dtype, found `add` (aten.add.Scalar)"),
        (in_float64, "expected torch.float32, found torch.float64"),
        (to_another_dtype, "`x` has dtype torch.bfloat16 and `y` torch.float16"),
    ],
)
def test_near_norm_is_left_alone(function: Callable[[Tensor, Tensor], Tensor], reason: str) -> None:
    module = capture_graph(function, random_tensors((32, 32), (32,)))

    assert_left_alone(pipeline(), module, RULE, reason)


def test_weight_for_each_row_is_left_alone() -> None:
    module = capture_graph(llama, random_tensors((6, 32), (6, 32)))

    assert_left_alone(pipeline(), module, RULE, "`weight` has 2 dimensions")


def test_weight_in_float64_is_left_alone() -> None:
    x, weight = random_tensors((6, 32), (32,))
    module = capture_graph(olmo, [x, weight.double()])

    assert_left_alone(pipeline(), module, RULE, "`weight` has dtype torch.float64")


def test_normalized_value_used_elsewhere_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.to(torch.float32)
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return weight * (wide * root).to(x.dtype), root

    module = capture_graph(function, random_tensors((6, 32), (32,)))

    assert_left_alone(pipeline(), module, RULE, "inside the match is used by")


def test_norm_on_the_cpu_is_left_alone() -> None:
    module = capture_graph(llama, random_tensors((6, 32), (32,), device="cpu"))

    assert_left_alone(pipeline(), module, RULE, "runs on an NPU")


def test_strided_result_that_is_viewed_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return llama(x.transpose(0, 1), weight).transpose(0, 1).view(-1)

    module = capture_graph(function, random_tensors((4, 6, 32), (32,)))

    assert_left_alone(pipeline(), module, RULE, "for which the view may be illegal")
