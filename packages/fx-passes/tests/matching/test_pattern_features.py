"""Features of patterns: lists of any length, optional inputs, outputs anywhere, alternatives."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - patterns name it in their annotations
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.errors import PatternError
from fx_passes.matching.pattern import compile_pattern
from fx_passes.testing import (
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node


def _negated_cat(tensors: Sequence[Tensor], dim: int) -> dict[str, Tensor]:
    return {"y": torch.cat(tensors, dim).neg().neg()}  # type: ignore[arg-type]


def _plain_cat(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::cat", match.bound["tensors"], match.bound["dim"])}


def _split_of_negation(x: Tensor, sizes: Sequence[int], dim: int) -> dict[str, object]:
    return {"parts": torch.split(x.neg().neg(), sizes, dim)}  # type: ignore[arg-type]


def _plain_split(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    x, sizes, dim = (match.bound[name] for name in ("x", "sizes", "dim"))
    value = match.value("parts")
    return {"parts": build.call("aten::split_with_sizes", x, sizes, dim, val=value)}


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> dict[str, Tensor]:
    return {"y": torch.nn.functional.linear(x, weight, bias).neg().neg()}


def _plain_linear(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::linear", *(match.bound[n] for n in ("x", "weight", "bias")))}


def _two_results(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    total = x + y
    return {"left": total.sin(), "right": total.cos()}


def _two_results_again(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    negated = build.call("aten::neg", match.bound["y"])
    total = build.call("aten::sub.Tensor", match.bound["x"], negated)
    operators = {"left": "aten::sin", "right": "aten::cos"}
    return {name: build.call(operators[name], total) for name in sorted(match.needed)}


def pipeline_of(
    *patterns: Callable[..., object], rewrite: Callable[..., dict[str, Node]]
) -> fx_passes.Pipeline:
    rule = fx_passes.Rule(name="rule", patterns=patterns, rewrite=rewrite, accepts_cost=True)  # type: ignore[arg-type]
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def check(pipeline: fx_passes.Pipeline, function: Callable[..., object], count: int = 3) -> None:
    inputs = random_tensors(*[(4, 4)] * count, dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs)
    expected = module(*inputs)
    assert_rewritten(pipeline, module, {"rule": 1})
    assert_same_values(module(*inputs), expected)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_list_of_tensors_of_any_length_matches_one_pattern(count: int) -> None:
    def function(*tensors: Tensor) -> Tensor:
        return torch.cat(list(tensors), -1).neg().neg()

    check(pipeline_of(_negated_cat, rewrite=_plain_cat), function, count)


@pytest.mark.parametrize("sizes", [[4], [1, 3], [1, 1, 2]])
def test_results_of_any_number_are_one_output(sizes: list[int]) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        parts = x.neg().neg().split(sizes, -1)  # type: ignore[no-untyped-call]
        return tuple(part * number for number, part in enumerate(parts, 2))

    check(pipeline_of(_split_of_negation, rewrite=_plain_split), function, 1)


@pytest.mark.parametrize("biased", [True, False])
def test_optional_input_matches_given_or_not(biased: bool) -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out = torch.nn.functional.linear(x, weight, bias[0] if biased else None)
        return out.neg().neg() + bias

    check(pipeline_of(_linear, rewrite=_plain_linear), function)


@pytest.mark.parametrize("rare", ["sin", "cos", "add"])
def test_pattern_of_several_results_is_found_from_any_of_its_operators(rare: str) -> None:
    """The operator that is rarest in the graph is the anchor."""

    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        total = x + y
        left, right = total.sin(), total.cos()
        for _ in range(3):
            z = z if rare == "sin" else z.sin() * 2
            z = z if rare == "cos" else z.cos() * 2
            z = z if rare == "add" else (z + 1) * 2
        return left, right, z

    check(pipeline_of(_two_results, rewrite=_two_results_again), function)


@pytest.mark.parametrize("taken", [0, 1])
def test_result_that_nobody_uses_is_not_built(taken: int) -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        total = x + y
        return (total.sin(), total.cos())[taken] * z

    module = capture_graph(function, random_tensors(*[(4, 4)] * 3, device="cpu"))

    assert_rewritten(pipeline_of(_two_results, rewrite=_two_results_again), module, {"rule": 1})

    left = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert (torch.ops.aten.sin.default in left, torch.ops.aten.cos.default in left) == (
        taken == 0,
        taken == 1,
    )


def test_first_alternative_that_fits_wins() -> None:
    def once(tensors: Sequence[Tensor], dim: int) -> dict[str, Tensor]:
        return {"y": torch.cat(tensors, dim).neg().neg()}  # type: ignore[arg-type]

    def other(x: Tensor) -> dict[str, Tensor]:
        return {"y": x.exp().log()}

    def function(x: Tensor) -> Tensor:
        return x.exp().log()

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::clone", match.bound["x"])}

    module = capture_graph(function, random_tensors((4, 4), device="cpu"))

    assert_rewritten(pipeline_of(once, other, rewrite=rewrite), module, {"rule": 1})


def test_pattern_of_two_parts_that_share_nothing_is_refused() -> None:
    def pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"a": x.neg(), "b": y.abs().sin()}

    with pytest.raises(PatternError, match="share no value with the rest"):
        compile_pattern(pattern)
