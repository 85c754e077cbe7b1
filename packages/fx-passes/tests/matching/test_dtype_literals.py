"""A dtype and its number are one literal, at both levels of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.graph_argument import literals_equal, number_of_dtype
from fx_passes.inductor import rule_from_replacement
from fx_passes.testing import GraphLevel, assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule, Node

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
SPELLINGS = [torch.qint8, 12]
npu = torch.ops.npu


def quantized_by(dtype: object) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def function(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        found: Tensor = npu.npu_quantize(x, scale, offset, dtype, -1, False)
        return found

    return function


def module_of(dtype: object, level: GraphLevel) -> GraphModule:
    inputs = random_tensors((4, 64), (64,), (64,))
    return capture_graph(quantized_by(dtype), inputs, level=level)


def pipeline_of(rule: fx_passes.Rule) -> fx_passes.Pipeline:
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=(rule,)))
    return fx_passes.Pipeline(passes=passes)


def rule_with(dtype: object) -> fx_passes.Rule:
    """A rule that knows the literal of its pattern."""

    def pattern(x: Tensor, scale: Tensor, offset: Tensor) -> dict[str, Tensor]:
        return {"q": npu.npu_quantize(x, scale, offset, dtype, -1, False)}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        bound = match.bound
        scale = build.call("aten::reciprocal", bound["scale"])
        args = (bound["x"], scale, bound["offset"], 12, -1)
        return {"q": build.call("npu::npu_quantize", *args, val=match.value("q"))}

    return fx_passes.Rule(
        name="rule", patterns=(pattern,), rewrite=rewrite, numerics="rounding", accepts_cost=True
    )


def replacement_with(dtype: object) -> fx_passes.Rule:
    """The form of the seed's pattern classes."""

    def replacement(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        found: Tensor = npu.npu_quantize(x, torch.reciprocal(scale), offset, dtype, -1, True)
        return found

    def examples() -> list[Tensor]:
        shapes: tuple[tuple[int, ...], ...] = ((2, 64), (64,), (64,))
        return [torch.empty(each, dtype=torch.bfloat16, device="npu") for each in shapes]

    return rule_from_replacement(quantized_by(dtype), replacement, examples, name="rule")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("in_graph", SPELLINGS)
@pytest.mark.parametrize("in_pattern", SPELLINGS)
@pytest.mark.parametrize("make", [rule_with, replacement_with])
def test_dtype_and_its_number_match(
    make: Callable[[object], fx_passes.Rule],
    in_pattern: object,
    in_graph: object,
    level: GraphLevel,
) -> None:
    assert_rewritten(pipeline_of(make(in_pattern)), module_of(in_graph, level), {"rule": 1})


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [rule_with, replacement_with])
def test_another_dtype_does_not_match(
    make: Callable[[object], fx_passes.Rule], level: GraphLevel
) -> None:
    module = module_of(torch.int8, level)

    assert pipeline_of(make(torch.qint8)).run(module).report.match_counts() == {"rule": 0}


@pytest.mark.parametrize("dtype", SPELLINGS)
def test_checks_see_the_number_at_both_levels(dtype: object) -> None:
    seen: list[object] = []

    def pattern(x: Tensor, scale: Tensor, offset: Tensor, dtype: object) -> dict[str, Tensor]:
        return {"q": npu.npu_quantize(x, scale, offset, dtype, -1, False)}

    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        seen.append(match.bound["dtype"])
        return fx_passes.NoMatch("seen")

    rule = fx_passes.Rule(
        name="rule", patterns=(pattern,), check=check, rewrite=rule_with(12).rewrite
    )
    for level in LEVELS:
        pipeline_of(rule).run(module_of(dtype, level))

    assert seen == [12, 12]


def test_normal_form_is_reached_once_and_computes_the_same() -> None:
    inputs = random_tensors((4, 64), (64,), (64,), device="npu")
    module = capture_graph(quantized_by(torch.qint8), inputs)
    expected = module(*inputs)[0].cpu()

    assert fx_passes.normalize_graph(module) == 1
    assert fx_passes.normalize_graph(module) == 0
    module.recompile()
    assert torch.equal(module(*inputs)[0].cpu(), expected)


def test_dtype_for_a_dtype_stays_one() -> None:
    module = capture_graph(lambda x: x.to(torch.int8), random_tensors((4,)), level="aten")

    fx_passes.normalize_graph(module)

    (cast,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
    assert cast.kwargs["dtype"] is torch.int8


def all_dtypes() -> list[torch.dtype]:
    return sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)


def test_every_dtype_equals_its_own_number_and_no_other() -> None:
    numbers = {dtype: number_of_dtype(dtype) for dtype in all_dtypes()}

    assert len(set(numbers.values())) == len(numbers) > 20
    for dtype, own in numbers.items():
        for other, number in numbers.items():
            assert literals_equal(dtype, number) == (dtype is other)
            assert literals_equal(number, dtype) == (dtype is other)
            assert literals_equal(dtype, other) == (dtype is other)
        assert not literals_equal(dtype, float(own))
        assert not literals_equal(dtype, str(dtype))
        assert not literals_equal(dtype, None)
    assert not literals_equal(torch.int8, True)
