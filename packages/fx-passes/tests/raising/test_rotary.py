"""RoPE written in plain torch, as torch.compile gives it, and what only looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.raising import raise_rotary
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
    rules = fx_passes.RulePass(name="raise", rules=raise_rotary())
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


def other_sign(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., :8], x[..., 8:]
    return (x * cos) + (torch.cat((second, -first), dim=-1) * sin)


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
        (other_sign, "expected a call of aten.neg.default"),
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
    _, cos, sin = random_tensors(*SHAPES, dtype=torch.float32)
    module = capture_graph(sliced, [x, cos, sin])

    assert_left_alone(pipeline(), module, RULE, "the kernel takes one dtype")
