"""Invalid combinations raise at once, and the error says how to write it correctly."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes import dialects, fusions, generic_passes, raising
from fx_passes.fusions import fuse_swiglu
from fx_passes.inductor import PostGradPasses
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule, Node


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.neg(torch.ops.aten.neg(x))}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.bound["x"])}


RULE = fx_passes.Rule(name="double_negation", patterns=(_pattern,), rewrite=_rewrite)
RULES = fx_passes.RulePass(name="rules", rules=(RULE,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patterns": _pattern}, r"one pattern.*write `patterns=\(pattern,\)`"),
        ({"patterns": ()}, "it has no pattern"),
        ({"patterns": 3}, "found 3"),
        ({"patterns": ("neg",)}, r"`patterns\[0\]` must be a function.*'neg'"),
        ({"rewrite": None}, "`rewrite` must be a function, found None"),
        ({"check": None}, "`check` must be a function, found None; leave it out"),
        ({"prepare": 3}, "`prepare` must be a function, found 3"),
        ({"numerics": "exakt"}, r"\('exact', 'rounding'\), found 'exakt'; near: exact"),
        ({"operators": "aten::neg"}, r"write `operators=\('aten::neg',\)`"),
        ({"operators": ("neg",)}, "holds 'neg'; write the qualified name"),
        ({"operators": 3}, "tuple of names, found 3"),
    ],
)
def test_rule_put_together_wrongly_says_how_to(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(fx_passes.PipelineError, match=message) as raised:
        replace(RULE, **changes)

    assert "making the rule 'double_negation'" in str(raised.value)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (RULE, r"one rule.*write `rules=\(rule,\)`"),
        (((RULE,),), r"`rules\[0\]` is a tuple.*`rules=\(first\(\), \*second\(\)\)`"),
        ((_pattern,), r"`rules\[0\]` must be a Rule"),
        (3, "tuple of rules, found 3"),
    ],
)
def test_rule_pass_put_together_wrongly_says_how_to(rules: Any, message: str) -> None:
    with pytest.raises(fx_passes.PipelineError, match=message) as raised:
        fx_passes.RulePass(name="mine", rules=rules)

    assert "making the pass 'mine'" in str(raised.value)


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ((RULE,), r"the rule 'double_negation' is no pass; write `RulePass\("),
        (RULE, "`passes` is one pass or rule"),
        (RULES, "`passes` is one pass or rule"),
        (((RULES,),), r"found a tuple; write `\*` before it"),
        ((lambda _: None,), "wrap a function that takes a GraphModule in a FunctionPass"),
        ((3,), "expected a pass, found 3"),
        (3, "tuple of passes, found 3"),
        (
            (fx_passes.NormalizePass(after=cast("Any", "normalize")),),
            r"write `after=\('normalize',\)`",
        ),
    ],
)
def test_pipeline_put_together_wrongly_says_how_to(passes: Any, message: str) -> None:
    with pytest.raises(fx_passes.PipelineError, match=message):
        fx_passes.Pipeline(passes=passes)


def _negations(x: Tensor) -> Tensor:
    return x.neg().neg()


def _module(function: Callable[[Tensor], Tensor]) -> GraphModule:
    return capture_graph(function, random_tensors((3,), device="cpu"))


def test_rules_on_a_graph_without_normal_form_say_that_it_is_missing() -> None:
    module = _module(_negations)

    result = fx_passes.Pipeline(passes=(RULES,)).run(module)

    text = str(result.report)
    assert "2 nodes are not in normal form" in text
    assert "put a NormalizePass before this pass" in text
    assert not result.modified
    assert [node.op for node in module.graph.nodes][1:3] == ["call_method"] * 2


def test_rules_without_matches_on_a_normal_graph_do_not_suggest_normal_form() -> None:
    module = _module(lambda x: x.exp().size(0) * x)

    result = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), RULES)).run(module)

    assert "normal form, " not in str(result.report)
    assert "NormalizePass" not in str(result.report)


def test_report_says_which_operator_the_graph_does_not_call() -> None:
    module = _module(torch.exp)

    result = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), RULES)).run(module)

    (report,) = result.report.rule_reports("double_negation")
    assert report.absent == ("aten.neg.default",)
    text = str(result.report)
    assert "0 matched, 0 near misses; the graph has no call of aten.neg.default" in text


def test_all_functions_that_make_rules_return_one_or_a_tuple_of_them() -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "fuse_matmul_all_reduce": ((),),
        "shard_all_reduce_norm": ((),),
        "remove_gather_of_own_shard": ((),),
    }
    makers = {
        name: getattr(folder, name)
        for folder in (dialects, fusions, generic_passes, raising)
        for name in folder.__all__
        if name.startswith(("fuse_", "raise_", "remove_", "shard_")) or name.endswith("_dialect")
    }
    del makers["raise_model"]
    assert len(makers) > 20
    for name, maker in makers.items():
        made = maker(*arguments.get(name, ()))
        is_one = isinstance(made, fx_passes.Rule)
        returned = inspect.signature(maker).return_annotation
        assert returned == ("Rule" if is_one else "tuple[Rule, ...]"), name
        fx_passes.RulePass(name="rules", rules=(made,) if is_one else made)


def test_what_makes_rules_is_added_as_it_is() -> None:
    passes = PostGradPasses(fx_passes.Pipeline(passes=(fx_passes.NormalizePass(),)))

    passes.add(fuse_swiglu())

    assert passes.pipeline.names() == ["normalize", "added_fuse_swiglu", "fuse_swiglu"]
