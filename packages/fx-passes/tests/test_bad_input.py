"""Bad rules and bad graphs: a typed error that names the culprit, and the graph as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.errors import PatternError
from fx_passes.inductor import rule_from_replacement
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

aten = torch.ops.aten


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.neg().neg()}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.bound["x"])}


def _no_output(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    _rewrite(match, build)
    return {}


def _two_outputs(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {**_rewrite(match, build), "z": build.call("aten::abs", match.bound["x"])}


def _same_again(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::neg", build.call("aten::neg", match.bound["x"]))}


def _raises(match: fx_passes.Match) -> None:
    raise LookupError(match.anchor.name)


def _writes(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.neg().neg_()}


def _later_node(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    """Use a value that is computed after the match, where it is not available."""
    *_, last, _output = match.nodes[0].graph.nodes
    return {"y": build.call("aten::add.Tensor", match.bound["x"], last)}


RULE = fx_passes.Rule(name="bad_rule", patterns=(_pattern,), rewrite=_rewrite)


def module_of() -> GraphModule:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.neg().neg(), x.exp()

    return capture_graph(function, random_tensors((3,), device="cpu"))


def two_replacements(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.abs(), x.exp()


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (replace(RULE, rewrite=_no_output), fx_passes.RuleError, r"outputs \['y'\], found \[\]"),
        (replace(RULE, rewrite=_two_outputs), fx_passes.RuleError, r"found \['y', 'z'\]"),
        (
            replace(
                rule_from_replacement(
                    lambda x: x.neg().neg(), two_replacements, [torch.empty(3)], name="bad_rule"
                ),
                optional=False,
            ),
            PatternError,
            "returns 2 tensors, the search function 1",
        ),
        (replace(RULE, check=_raises), fx_passes.RuleError, "LookupError"),
        (replace(RULE, rewrite=_same_again), fx_passes.PassError, "never end"),
        (replace(RULE, patterns=(_writes,)), PatternError, "side effects"),
    ],
    ids=["no output", "two outputs", "two results", "check", "loop", "side effect"],
)
def test_bad_rule_is_named_and_the_graph_left_as_it_was(
    rule: fx_passes.Rule, error: type[Exception], message: str
) -> None:
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=(rule,)))
    pipeline = fx_passes.Pipeline(passes=passes, observers=(fx_passes.VerifyObserver(),))
    module = module_of()
    graph, before = module.graph, str(module.graph)

    with pytest.raises(error, match=message) as raised:
        pipeline.run(module)

    assert "bad_rule" in str(raised.value)
    assert isinstance(raised.value, fx_passes.FxPassesError)
    assert module.graph is graph
    assert str(graph) == before
    graph.lint()
    module.recompile()
    x = torch.tensor([1.0, -2.0, 3.0])
    assert torch.equal(module(x)[0], x)


def test_graph_that_fails_lint_is_refused_before_the_first_pass() -> None:
    module = module_of()
    first = module.graph.find_nodes(op="placeholder")[0]
    first.prepend(next(iter(first.users)))
    before = str(module.graph)
    rules = fx_passes.RulePass(name="rules", rules=(RULE,))
    pipeline = fx_passes.Pipeline(passes=(rules,), observers=(fx_passes.VerifyObserver(),))

    with pytest.raises(fx_passes.PassError, match="before the pass 'rules'"):
        pipeline.run(module)

    assert str(module.graph) == before


def test_rewrite_that_uses_a_later_value_does_not_match() -> None:
    rules = (replace(RULE, rewrite=_later_node),)
    module = module_of()
    fx_passes.normalize_graph(module)
    before = str(module.graph)

    result = fx_passes.Pipeline(passes=(fx_passes.RulePass(name="rules", rules=rules),)).run(module)

    assert not result.modified
    assert str(module.graph) == before
    assert "bad_rule: 0 matched, 1 near misses" in str(result.report)
