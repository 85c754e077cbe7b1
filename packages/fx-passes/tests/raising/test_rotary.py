"""RoPE written in plain torch, as torch.compile produces it, and look-alikes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.raising import raise_model, raise_rotary
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

RULE = "raise_rotary"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
SHAPES = ((2, 4, 7, 16), (1, 1, 7, 16), (1, 1, 7, 16))


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="raise", rules=(raise_rotary(),))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def sliced(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return (x * cos) + (torch.cat((-second, first), dim=-1) * sin)


def chunked(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return sin * torch.cat((-second, first), dim=-1) + cos * x


def split(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = torch.split(x, 8, dim=-1)
    return x * cos + torch.cat([-second, first], dim=3) * sin


FORMS = [sliced, chunked, split]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FORMS)
def test_rope_of_every_form_is_raised_with_equal_values(
    level: GraphLevel, dtype: torch.dtype, function: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    tensors = random_tensors(*SHAPES, dtype=dtype, device="npu")
    module = capture_graph(function, tensors, level=level)
    # The order of the inputs is that of their first use.
    order = _order(function, tensors)
    expected = (function(*tensors),)

    assert_rewritten(pipeline(), module, {RULE: 1})

    # Two products and their sum are rounded, the kernel rounds once.
    assert_same_values(tuple(module(*order)), expected, roundings=3)


def _order(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    x, cos, sin = tensors
    return [x, sin, cos] if function is chunked else [x, cos, sin]


def half(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def neighbours(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def split_in_sizes(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = torch.split(x, [8, 8], dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def backwards(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NanoChat."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((second, -first), dim=-1) * sin


def wide_angles(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """OLMo 2 and 3."""
    return (x * cos.float() + half(x) * sin.float()).to(x.dtype)


def wide_products(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return (x.float() * cos + half(x).float() * sin).to(x.dtype)


def interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GLM, Helium."""
    return x * cos + neighbours(x) * sin


def wide_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Ernie 4.5, DeepSeek V4."""
    return (x.float() * cos + neighbours(x).float() * sin).to(x.dtype)


def products_of_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GPT-OSS."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[..., :8], sin[..., :8]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def products_of_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """DeepSeek V3."""
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[..., :8], sin[..., :8]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def complex_numbers(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Llama 4, DeepSeek V2."""
    angles = torch.view_as_complex(torch.stack([cos[..., :8], sin[..., :8]], -1).float())
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(x.dim() - 1).type_as(x)


SPELT_FORMS = [
    split_in_sizes,
    backwards,
    wide_angles,
    wide_products,
    interleaved,
    wide_interleaved,
    products_of_halves,
    products_of_neighbours,
    complex_numbers,
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shapes", [SHAPES, ((7, 4, 16), (7, 1, 16), (7, 1, 16))])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("function", SPELT_FORMS)
def test_rope_of_every_spelling_is_raised_with_equal_values(
    level: GraphLevel,
    shapes: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    x, cos, sin = random_tensors(*shapes, dtype=dtype, device="npu")

    def ordered(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Dynamo takes the inputs in the order of their first use.
        return function(x * 1, cos * 1, sin * 1)

    module = capture_graph(ordered, [x, cos, sin], level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert_same_values(tuple(module(x, cos, sin)), (function(x, cos, sin),), roundings=3)


@pytest.mark.parametrize("function", [sliced, chunked])
def test_rope_of_symbolic_batch_and_length_is_raised(
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    inputs = random_tensors(*SHAPES)
    for tensor in inputs:
        torch._dynamo.maybe_mark_dynamic(tensor, 2)
    module = capture_graph(function, inputs, dynamic={0: 0})

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_metadata_says_that_the_result_is_contiguous() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return sliced(x.transpose(1, 2), cos, sin)

    module = capture_graph(function, random_tensors((2, 7, 4, 16), *SHAPES[1:]))

    assert_rewritten(pipeline(), module, {RULE: 1})

    (call,) = module.graph.find_nodes(
        op="call_function", target=torch.ops.npu.npu_rotary_mul.default
    )
    assert call.meta["val"].is_contiguous()


def exchanged(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., 8:], x[..., :8]
    return (x * cos) + (torch.cat((-second, first), dim=-1) * sin)


def quarters(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., :4], x[..., 4:]
    return (x * cos) + (torch.cat((-second, first), dim=-1) * sin)


def of_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[:, :2], x[:, 2:]
    return (x * cos) + (torch.cat((-second, first), dim=1) * sin)


def of_another_tensor(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., :8], x[..., 8:]
    return ((x + 1) * cos) + (torch.cat((-second, first), dim=-1) * sin)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (exchanged, "are not the two halves of 16"),
        (quarters, "are not the two halves of 16"),
        (of_heads, "along dimension 1 of 4, not the last"),
        (of_another_tensor, "no user of `l_x_` is a call of aten.mul.Tensor"),
    ],
)
def test_near_rope_is_left_alone(
    function: Callable[[Tensor, Tensor, Tensor], Tensor], reason: str
) -> None:
    module = capture_graph(function, random_tensors(*SHAPES))

    assert_left_alone(pipeline(), module, RULE, reason)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (((7, 16), (7, 16), (7, 16)), "`x` has 2 dimensions"),
        (((1, 4, 7, 16), (3, 1, 7, 16), (3, 1, 7, 16)), "does not broadcast"),
        (((2, 4, 7, 16), (1, 1, 7, 1), (1, 1, 7, 1)), "the same in the last"),
    ],
)
def test_shapes_that_the_kernel_does_not_take_are_left_alone(
    shapes: tuple[tuple[int, ...], ...], reason: str
) -> None:
    module = capture_graph(sliced, random_tensors(*shapes))

    assert_left_alone(pipeline(), module, RULE, reason)


def test_angles_of_another_dtype_are_left_alone() -> None:
    x, _, _ = random_tensors(*SHAPES)
    _, cos, sin = random_tensors(*SHAPES, dtype=torch.float64)
    module = capture_graph(sliced, [x, cos, sin])

    assert_left_alone(pipeline(), module, RULE, "the kernel takes and gives one dtype")


def shifted_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotated = torch.stack((-x[..., 0::2], x[..., 1::2]), dim=-1).flatten(-2)
    return x * cos + rotated * sin


def neighbours_apart(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotated = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-2).flatten(-2)
    return x * cos + rotated * sin


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (shifted_neighbours, "are not the even and the odd elements of 16"),
        (neighbours_apart, "neighbours are stacked along dimension -2 of 5, not the last"),
    ],
)
def test_near_neighbours_are_left_alone(
    function: Callable[[Tensor, Tensor, Tensor], Tensor], reason: str
) -> None:
    module = capture_graph(function, random_tensors(*SHAPES))

    assert_left_alone(pipeline(), module, RULE, reason)


def test_report_says_what_a_rotation_lacks() -> None:
    def function(x: Tensor, sin: Tensor) -> Tensor:
        return half(x) * sin - x

    module = capture_graph(function, random_tensors(*SHAPES[:2]))

    (site,) = raise_model(module).report.left("rope")

    assert "the rotated part times the sines, is not added to x * cos" in site.reason
