"""Norms written in plain torch, as torch.compile produces them, and look-alikes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm
from fx_passes.raising import raise_model, raise_rms_norm, spelt_rms_norm
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
SPELT = "spelt_rms_norm"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
EPSILON = 1e-6


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="raise", rules=(spelt_rms_norm(), raise_rms_norm()))
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


def module(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def without_epsilon(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x * 1e-3, (x.shape[-1],), weight)


def type_as(x: Tensor, weight: Tensor) -> Tensor:
    """Llama 4."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).type_as(x)


def by_power(x: Tensor, weight: Tensor) -> Tensor:
    """Gemma 3n, Gemma 4."""
    wide = x.float()
    mean = wide.pow(2).mean(-1, keepdim=True) + EPSILON
    return (wide * torch.pow(mean, -0.5) * weight.float()).type_as(x)


def of_products(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    mean = (wide * wide).mean(-1, keepdim=True) + EPSILON
    return weight * (wide / torch.sqrt(mean)).to(x.dtype)


def of_squares(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    mean = wide.square().mean(-1, keepdim=True) + EPSILON
    return weight * (wide * (1 / torch.sqrt(mean))).to(x.dtype)


def over_power(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide / ((wide**2).mean(-1, keepdim=True) + EPSILON) ** 0.5).to(x.dtype)


def wide_root(x: Tensor, weight: Tensor) -> Tensor:
    """CPM-Ant."""
    mean = x.to(torch.float32).pow(2).mean(dim=-1, keepdim=True)
    return (x * torch.rsqrt(mean + EPSILON)).to(x.dtype) * weight


FORMS = [llama, gemma, olmo]
SPELT_FORMS = [type_as, by_power, of_products, of_squares, over_power, wide_root]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FORMS)
def test_norm_of_every_form_is_raised_with_equal_values(
    level: GraphLevel, dtype: torch.dtype, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    tensors = random_tensors((6, 64), (64,), dtype=dtype, device="npu")
    module = capture_graph(function, tensors, level=level)
    expected = (function(*tensors),)

    report = assert_rewritten(pipeline(), module, {SPELT: 1, RULE: 1})

    assert report.matches(RULE)[0].literals["epsilon"] == repr(EPSILON)
    assert_same_values(tuple(module(*tensors)), expected, roundings=1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", SPELT_FORMS)
def test_norm_of_every_spelling_is_raised_with_equal_values(
    level: GraphLevel, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    tensors = random_tensors((6, 64), (64,), device="npu")
    module = capture_graph(function, tensors, level=level)

    assert_rewritten(pipeline(), module, {SPELT: 1, RULE: 1})

    assert_same_values(tuple(module(*tensors)), (function(*tensors),), roundings=1)
    left = {"aten._to_copy.default", "aten.to.dtype", "aten.type_as.default"}
    weights = ["by_power"]  # the model's own cast of the weight
    if function.__name__ not in weights:
        assert left.isdisjoint(str(node.target) for node in module.graph.nodes)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("function", [module, without_epsilon])
def test_norm_of_torch_is_raised_with_equal_values(
    level: GraphLevel, dtype: torch.dtype, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    tensors = random_tensors((6, 64), (64,), dtype=dtype, device="npu")
    graph_module = capture_graph(function, tensors, level=level)

    raised = {RULE: 1} if level == "dynamo" else {SPELT: 1, RULE: 1}
    assert_rewritten(pipeline(), graph_module, raised)

    # torch multiplies with the weight in float32, which the kernel does for a weight in float32.
    target = torch.ops.npu.npu_rms_norm.default
    (norm,) = graph_module.graph.find_nodes(op="call_function", target=target)
    assert norm.args[1].meta["val"].dtype == torch.float32
    roundings = 4 if dtype == torch.float32 else 1
    expected = (function(*tensors),)
    assert_same_values(tuple(graph_module(*tensors)), expected, roundings=roundings)


def test_norm_over_two_dimensions_by_torch_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (6, 32), weight, EPSILON)

    graph_module = capture_graph(function, random_tensors((4, 6, 32), (6, 32)))

    assert_left_alone(pipeline(), graph_module, RULE, "over the dimensions (6, 32); expected one")


@pytest.mark.parametrize("level", LEVELS)
def test_norm_without_a_weight_is_raised_with_ones(level: GraphLevel) -> None:
    def function(x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)

    tensors = random_tensors((6, 64), device="npu")
    graph_module = capture_graph(function, tensors, level=level)

    assert_rewritten(pipeline(), graph_module, {SPELT: 1, RULE: 1})

    assert_same_values(tuple(graph_module(*tensors)), (function(*tensors),), roundings=1)


@pytest.mark.parametrize("level", LEVELS)
def test_norm_of_a_float32_model_is_raised(level: GraphLevel) -> None:
    tensors = random_tensors((6, 64), (64,), dtype=torch.float32, device="npu")
    module = capture_graph(llama, tensors, level=level)

    assert_rewritten(pipeline(), module, {SPELT: 1, RULE: 1})

    assert_same_values(tuple(module(*tensors)), (llama(*tensors),), roundings=4)


@pytest.mark.parametrize("function", FORMS)
def test_norm_of_symbolic_length_is_raised(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    module = capture_graph(function, random_tensors((6, 32), (32,)), dynamic={0: 0})

    assert_rewritten(pipeline(), module, {SPELT: 1, RULE: 1})


def test_gemma_norm_keeps_the_offset_in_float32() -> None:
    module = capture_graph(gemma, random_tensors((6, 32), (32,)))

    assert_rewritten(pipeline(), module, {SPELT: 1, RULE: 1})

    (norm,) = module.graph.find_nodes(op="call_function", target=torch.ops.npu.npu_rms_norm.default)
    assert norm.args[1].meta["val"].dtype == torch.float32


def test_norm_then_added_fuses_with_the_residual() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return llama(total, weight), total

    module = capture_graph(function, random_tensors((6, 32), (6, 32), (32,)))
    rules = fx_passes.RulePass(
        name="raise", rules=(spelt_rms_norm(), raise_rms_norm(), fuse_add_rms_norm())
    )
    both = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))

    assert_rewritten(both, module, {SPELT: 1, RULE: 1, "fuse_add_rms_norm": 1})


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
        (in_float64, "`x` has dtype torch.float64"),
    ],
)
def test_near_norm_is_left_alone(function: Callable[[Tensor, Tensor], Tensor], reason: str) -> None:
    module = capture_graph(function, random_tensors((32, 32), (32,)))

    assert_left_alone(pipeline(), module, SPELT, reason)


def of_less_its_mean(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide - mean).pow(2).mean(-1, keepdim=True)
    return weight * ((wide - mean) * torch.rsqrt(variance + EPSILON)).to(x.dtype)


def without_any_epsilon(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True))).to(x.dtype)


def without_a_root(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * (wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (of_another_tensor, "whose squares these are, is not what is divided by the root"),
        (of_less_its_mean, "which makes this a layer norm; torch.nn.functional.layer_norm"),
        (without_any_epsilon, "nothing is added to the mean of the squares, which goes into"),
        (without_a_root, "no root is taken of"),
    ],
)
def test_report_says_what_a_norm_lacks(
    function: Callable[[Tensor, Tensor], Tensor], reason: str
) -> None:
    graph_module = capture_graph(function, random_tensors((32, 32), (32,)))

    (site,) = raise_model(graph_module).report.left("norm")

    assert reason in site.reason


@pytest.mark.parametrize(
    ("function", "weight"),
    [
        (to_another_dtype, ((64,), torch.bfloat16)),
        (llama, ((6, 64), torch.bfloat16)),
        (olmo, ((64,), torch.float64)),
    ],
)
def test_weight_that_the_kernel_does_not_accept_stays_outside_it(
    function: Callable[[Tensor, Tensor], Tensor], weight: tuple[tuple[int, ...], torch.dtype]
) -> None:
    shape, dtype = weight
    x, scale = random_tensors((6, 64), shape, device="npu")
    tensors = [x, scale.to(dtype)]
    graph_module = capture_graph(function, tensors)

    assert_rewritten(pipeline(), graph_module, {SPELT: 1, RULE: 1})

    assert_same_values(tuple(graph_module(*tensors)), (function(*tensors),), roundings=1)


def test_normalized_value_used_elsewhere_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.to(torch.float32)
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return weight * (wide * root).to(x.dtype), root

    module = capture_graph(function, random_tensors((6, 32), (32,)))

    assert_left_alone(pipeline(), module, SPELT, "inside the match is used by")


def test_norm_on_the_cpu_is_left_alone() -> None:
    module = capture_graph(llama, random_tensors((6, 32), (32,), device="cpu"))

    assert_left_alone(pipeline(), module, SPELT, "runs on an NPU")


def test_strided_result_that_is_viewed_is_left_alone() -> None:
    """The view is of the product with the weight, which is laid out like the norm."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return llama(x.transpose(0, 1), weight).transpose(0, 1).view(-1)

    module = capture_graph(function, random_tensors((4, 6, 32), (32,)))

    assert_left_alone(pipeline(), module, SPELT, "for which the view may be illegal")
