"""The SwiGLU fusion on graphs as torch.compile gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_passes
from fx_passes.fusions import fuse_swiglu
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

RULE = "fuse_swiglu"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]


def pipeline() -> fx_passes.Pipeline:
    rules = (fuse_swiglu(),)
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="fusions", rules=rules))
    return fx_passes.Pipeline(passes=passes)


def chunked(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


def turned_round(x: Tensor) -> Tensor:
    gate, up = torch.chunk(x, 2, -1)
    return up * functional.silu(gate)


def split_by_size(x: Tensor) -> Tensor:
    gate, up = torch.split(x, x.shape[-1] // 2, dim=-1)
    return functional.silu(gate) * up


def split_by_sizes(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    gate, up = x.split([half, half], dim=1)  # type: ignore[no-untyped-call]
    out: Tensor = functional.silu(gate) * up
    return out


def sliced(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return functional.silu(x[..., :half]) * x[..., half:]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [chunked, turned_round, split_by_size, split_by_sizes, sliced])
def test_every_way_to_halve_is_fused(
    level: GraphLevel, function: Callable[[Tensor], Tensor]
) -> None:
    module = capture_graph(function, random_tensors((6, 32)), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.npu.npu_swiglu.default]


@pytest.mark.parametrize("level", LEVELS)
def test_symbolic_batch_is_fused(level: GraphLevel) -> None:
    module = capture_graph(chunked, random_tensors((6, 32)), level=level, dynamic={0: 0})

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_gate_used_elsewhere_is_left_alone() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate) * up, gate

    module = capture_graph(function, random_tensors((6, 32)))

    assert_left_alone(pipeline(), module, RULE, "inside the match is used by")


def test_exchanged_halves_are_left_alone() -> None:
    def function(x: Tensor) -> Tensor:
        up, gate = x.chunk(2, dim=-1)
        return functional.silu(gate) * up

    module = capture_graph(function, random_tensors((6, 32)))

    assert not pipeline().run(module).report.matches()


def test_exchanged_slices_are_left_alone() -> None:
    def function(x: Tensor) -> Tensor:
        return functional.silu(x[..., 16:]) * x[..., :16]

    module = capture_graph(function, random_tensors((6, 32)))

    assert_left_alone(pipeline(), module, RULE, "are not the two halves of 32")


def test_halves_of_another_dimension_are_left_alone() -> None:
    def function(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=0)
        return functional.silu(gate) * up

    module = capture_graph(function, random_tensors((6, 32)))

    assert_left_alone(pipeline(), module, RULE, "along dimension 0")


def test_unequal_parts_are_left_alone() -> None:
    def function(x: Tensor) -> Tensor:
        gate, up = x.split([1, 3], dim=-1)  # type: ignore[no-untyped-call]
        out: Tensor = functional.silu(gate) * up
        return out

    module = capture_graph(function, random_tensors((6, 4)))

    assert_left_alone(pipeline(), module, RULE, "is not half of [6, 4]")


def test_tensors_on_the_cpu_are_left_alone() -> None:
    module = capture_graph(chunked, random_tensors((6, 32), device="cpu"))

    assert_left_alone(pipeline(), module, RULE, "runs on an NPU")


def test_halves_of_two_tensors_are_left_alone() -> None:
    def function(x: Tensor, other: Tensor) -> Tensor:
        return functional.silu(x.chunk(2, dim=-1)[0]) * other.chunk(2, dim=-1)[1]

    module = capture_graph(function, random_tensors((6, 32), (6, 32)))

    assert not pipeline().run(module).report.matches()


def test_rule_declares_that_it_rounds_elsewhere() -> None:
    rule = fuse_swiglu()
    assert rule.numerics == "rounding"
    assert RULE not in fx_passes.default_npu_pipeline().exact().names()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numerics_agree_within_a_rounding(dtype: torch.dtype) -> None:
    tensors = random_tensors((6, 64), dtype=dtype, device="npu")
    module = capture_graph(chunked, tensors)
    expected = (chunked(*tensors),)

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert_same_values(tuple(module(*tensors)), expected, roundings=2)
