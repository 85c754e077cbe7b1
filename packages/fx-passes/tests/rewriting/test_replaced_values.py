"""A replacement whose value differs from the original is never applied, whoever wrote the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.inductor import rule_from_replacement
from fx_passes.testing import GraphLevel, assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule, Node

    Replacement = Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]]

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
aten = torch.ops.aten
npu = torch.ops.npu


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.exp(torch.mul(x, y))


def pipeline_of(*rules: fx_passes.Rule) -> fx_passes.Pipeline:
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=rules))
    return fx_passes.Pipeline(passes=passes)


def refused(rule: fx_passes.Rule, module: GraphModule, inputs: list[Tensor], message: str) -> None:
    """Require that a rule does not match, says why, and leaves the graph's results alone."""
    expected = module(*inputs)

    report = pipeline_of(rule).run(module).report

    assert not report.matches()
    (miss,) = report.near_misses()
    assert message in miss.reason
    for found, wanted in zip(module(*inputs), expected, strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (lambda x, y: torch.add(x, y).to(torch.int8), "dtype torch.int8, expected torch.bfloat16"),
        (lambda x, y: torch.add(x, y).float(), "dtype torch.float32, expected torch.bfloat16"),
        (lambda x, y: torch.add(x, y).sum(-1), "rank 1, expected 2"),
        (lambda x, y: torch.add(x, y).sum(-1, True), "shape [4, 1], expected [4, 4]"),
        (lambda x, y: torch.cat([x, y]), "shape [8, 4], expected [4, 4]"),
        (lambda x, y: torch.add(x, y).to("meta"), "device meta, expected cpu"),
        (lambda x, y: torch.add(x, y).t(), "strides [1, 4], expected [4, 1]"),
    ],
)
def test_foreign_replacement_that_gives_something_else_is_not_applied(
    level: GraphLevel, replacement: Replacement, message: str
) -> None:
    inputs = list(random_tensors((4, 4), (4, 4), device="cpu"))
    rule = rule_from_replacement(product, replacement, [torch.empty(6, 7)] * 2, name="rule")

    refused(rule, capture_graph(product, inputs, level=level), inputs, message)


def test_result_of_another_position_is_not_applied() -> None:
    """The mistake of the review of vllm-ascend #2389: the deviations in place of the sum."""

    def search(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        normed, _, total = npu.npu_add_rms_norm(x, y, weight, 1e-6)
        return torch.exp(normed), total

    def replacement(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        normed, deviations, _ = npu.npu_add_rms_norm(x, y, weight, 1e-6)
        return torch.exp(normed), deviations

    shapes = ((4, 64), (4, 64), (64,))
    inputs = list(random_tensors(*shapes))
    examples = [torch.empty(each, dtype=torch.bfloat16) for each in shapes]
    rule = rule_from_replacement(search, replacement, examples, name="rule")
    module = capture_graph(search, inputs)

    report = pipeline_of(rule).run(module).report

    (miss,) = report.near_misses()
    assert "dtype torch.float32, expected torch.bfloat16" in miss.reason


def test_register_replacement_of_inductor_is_compared_too() -> None:
    from fx_passes.inductor import PostGradPasses, Replacements

    replacements = Replacements()
    examples = [torch.empty(6, 7, dtype=torch.bfloat16)] * 2
    replacements.register_replacement(product, lambda x, y: (x + y).to(torch.int8), examples)
    passes = PostGradPasses(pipeline_of())
    passes.add(replacements.rules)
    inputs = random_tensors((4, 4), (4, 4), device="cpu")
    module = capture_graph(product, inputs, level="aten")

    passes(module.graph)

    (miss,) = passes.report.near_misses()
    assert "dtype torch.int8, expected torch.bfloat16" in miss.reason
    assert torch.equal(module(*inputs)[0], product(*inputs))


def pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"out": aten.exp(aten.mul(x, y))}


def test_rule_of_ones_own_whose_value_differs_is_not_applied() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"out": build.call("aten::gt.Tensor", match.bound["x"], match.bound["y"])}

    rule = fx_passes.Rule(name="rule", patterns=(pattern,), rewrite=rewrite)
    inputs = list(random_tensors((4, 4), (4, 4), device="cpu"))

    refused(rule, capture_graph(product, inputs), inputs, "dtype torch.bool, expected")


def test_element_of_a_new_call_is_compared() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        parts = build.call("aten::split.Tensor", match.bound["x"], 2)
        return build.elements(parts, {"out": 0})

    rule = fx_passes.Rule(name="rule", patterns=(pattern,), rewrite=rewrite)
    inputs = list(random_tensors((4, 4), (4, 4), device="cpu"))

    refused(rule, capture_graph(product, inputs), inputs, "shape [2, 4], expected [4, 4]")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("doubles", [False, True])
def test_symbolic_sizes_are_compared_without_guards(level: GraphLevel, doubles: bool) -> None:
    def search(x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(torch.sigmoid(torch.mm(x, y)))

    def replacement(x: Tensor, y: Tensor) -> Tensor:
        gated = torch.sigmoid(torch.mm(x, y))
        return torch.cat([gated, gated]) if doubles else gated

    inputs = list(random_tensors((6, 4), (4, 4), device="cpu"))
    module = capture_graph(search, inputs, level=level, dynamic={0: 0})
    fx_passes.normalize_graph(module)
    (product_node,) = module.graph.find_nodes(op="call_function", target=aten.mm.default)
    guards = product_node.meta["val"].fake_mode.shape_env.guards
    before = len(guards)
    rule = rule_from_replacement(
        search, replacement, [torch.empty(5, 7), torch.empty(7, 7)], name="rule"
    )

    report = pipeline_of(rule).run(module).report

    assert report.match_counts() == {"rule": int(not doubles)}
    assert all("shape [" in miss.reason for miss in report.near_misses())
    assert len(report.near_misses()) == int(doubles)
    assert len(guards) == before


def test_contiguous_result_may_replace_a_slice() -> None:
    def function(x: Tensor) -> Tensor:
        part: Tensor = aten.slice(x, 1, 0, 4)
        return part * 2

    def slice_(x: Tensor) -> dict[str, Tensor]:
        return {"part": aten.slice(x, 1, 0, 4)}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        part = build.call("aten::slice_copy.Tensor", match.bound["x"], 1, 0, 4)
        return {"part": part}

    rule = fx_passes.Rule(name="rule", patterns=(slice_,), rewrite=rewrite, accepts_cost=True)
    inputs = random_tensors((4, 8), device="cpu")

    assert_rewritten(pipeline_of(rule), capture_graph(function, inputs), {"rule": 1})
    strided = capture_graph(lambda x: aten.slice(x, 1, 0, 4).as_strided((2, 2), (8, 1)), inputs)
    expected = strided(*inputs)
    report = pipeline_of(rule).run(strided).report
    (miss,) = report.near_misses()
    assert "strides [4, 1], expected [8, 1], which `" in miss.reason
    assert torch.equal(strided(*inputs)[0], expected[0])
