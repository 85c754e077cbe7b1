"""The pass manager of vLLM and Inductor, and the switches of passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.codecache import FxGraphHashDetails

import fx_passes
from fx_passes import PassSelection, PipelineError, TokenRange
from fx_passes.inductor import PostGradPasses
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

aten = torch.ops.aten


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.neg().neg()}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.bound["x"])}


def _failing(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    del match, build
    raise KeyError("nothing")


RULE = fx_passes.Rule(name="double_negation", patterns=(_pattern,), rewrite=_rewrite)


def pipeline_of(rule: fx_passes.Rule = RULE) -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def negations() -> GraphModule:
    return capture_graph(lambda x: x.neg().neg(), random_tensors((3,), device="cpu"), level="aten")


def targets(graph: torch.fx.Graph) -> list[object]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_call_rewrites_a_graph_in_place() -> None:
    graph = negations().graph
    passes = PostGradPasses(pipeline_of())

    passes(graph)

    assert targets(graph) == [aten.abs.default]
    assert passes.results
    assert passes.results[-1].modified


def test_call_takes_a_graph_without_a_module() -> None:
    graph = torch.fx.Graph()
    graph.graph_copy = None  # type: ignore[method-assign,assignment]  # nothing may copy it
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(3, device="meta")
    first = graph.call_function(aten.neg.default, (x,))
    second = graph.call_function(aten.neg.default, (first,))
    first.meta["val"] = second.meta["val"] = x.meta["val"]
    graph.output(second)

    PostGradPasses(pipeline_of())(graph)

    assert targets(graph) == [aten.abs.default]


def test_no_arguments_give_the_fusions_for_npus() -> None:
    names = PostGradPasses().pipeline.names()
    assert [name for name in names if name != "vllm_ascend_dialect"][:1] == ["normalize"]
    assert names.index("vllm_ascend_dialect") < names.index("npu_fusions")
    assert set(fx_passes.default_npu_pipeline().names()) <= set(names)


def test_configure_reads_the_engines_configuration() -> None:
    passes = PostGradPasses(pipeline_of())
    passes.configure(SimpleNamespace(additional_config={"fx_passes": {"disabled": ["rules"]}}))
    graph = negations().graph

    passes(graph)

    assert targets(graph) == [aten.neg.default] * 2


def test_configure_without_settings_runs_everything() -> None:
    passes = PostGradPasses(pipeline_of())

    passes.configure(SimpleNamespace(additional_config=None))

    assert passes.selection == PassSelection()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"disable": []}, "near: .*disabled"),
        ({"disabled": ["rule"]}, "near: rules"),
        ({"ranges": {"double_negatoin": (0, 8)}}, "near: double_negation"),
        ({"ranges": {"rules": (8, 2)}}, "start <= end"),
        ({"require": ["rules"]}, "'require' is for those who ask the report"),
        ({"require": "rules"}, r"expected 'require' to be a list of names, such as \['rules'\]"),
        ({"exact": 1}, "expected 'exact' to be true or false, found 1"),
        ("rules", "expected a mapping of enabled, disabled, ranges, exact, require"),
    ],
)
def test_configure_with_an_unknown_name_raises_and_keeps_the_switches(
    settings: object, message: str
) -> None:
    passes = PostGradPasses(pipeline_of())

    with pytest.raises(PipelineError, match=message):
        passes.configure(SimpleNamespace(additional_config={"fx_passes": settings}))

    assert passes.selection == PassSelection()


def test_a_required_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PipelineError, match="near: rules"):
        PostGradPasses(pipeline_of()).configure({"require": ["rule"]})


def test_exact_runs_only_what_changes_no_bit() -> None:
    passes = PostGradPasses()
    passes.configure({"exact": True, "disabled": ["fuse_swiglu"], "require": ["remove_cast"]})
    chosen = passes.selection.select(passes.pipeline)

    assert chosen == passes.pipeline.exact()
    assert "fuse_swiglu" not in chosen.names()
    assert passes.selection.require == ("remove_cast",)


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [
        (TokenRange(start=512, end=1024), True),
        (TokenRange(start=600, end=600), True),
        (TokenRange(start=600), False),
        (TokenRange(start=1, end=600), False),
        (None, False),
    ],
)
def test_range_of_a_rule_decides_for_each_graph(tokens: TokenRange | None, runs: bool) -> None:
    passes = PostGradPasses(pipeline_of(), tokens=lambda: tokens)
    passes.configure({"ranges": {"double_negation": (512, 1024)}})
    graph = negations().graph

    passes(graph)

    assert (targets(graph) == [aten.abs.default]) is runs


def test_switch_above_all_others_runs_nothing() -> None:
    selection = PassSelection(enabled=False, ranges=(("rules", TokenRange()),))

    assert selection.select(pipeline_of(), TokenRange(start=1, end=1)).passes == ()


def test_add_appends_passes_and_rules() -> None:
    passes = PostGradPasses(fx_passes.Pipeline(passes=(fx_passes.NormalizePass(),)))
    passes.add(RULE)
    passes.add(fx_passes.FunctionPass(name="mine", function=lambda _: False))
    graph = negations().graph

    passes(graph)

    assert targets(graph) == [aten.abs.default]
    assert passes.pipeline.names() == ["normalize", "added_double_negation", RULE.name, "mine"]
    with pytest.raises(PipelineError, match="expected a GraphPass, a Rule or a pass of Inductor"):
        passes.add(lambda _: None)  # type: ignore[arg-type]


def test_failure_leaves_the_very_graph_as_it_was() -> None:
    module = negations()
    graph, before = module.graph, str(module.graph)
    failing = fx_passes.Rule(name="failing", patterns=(_pattern,), rewrite=_failing)

    with pytest.raises(fx_passes.RuleError, match="'failing'"):
        PostGradPasses(pipeline_of(failing))(graph)

    assert module.graph is graph
    assert str(graph) == before
    graph.lint()


def test_uuid_follows_passes_switches_and_sizes() -> None:
    first, again = PostGradPasses(pipeline_of()), PostGradPasses(pipeline_of())
    assert first.uuid() == again.uuid()

    again.configure({"disabled": ["rules"]})
    sized = PostGradPasses(pipeline_of(), tokens=lambda: TokenRange(start=1, end=8))
    added = PostGradPasses(pipeline_of())
    added.add(fx_passes.FunctionPass(name="mine", function=_failing))  # type: ignore[arg-type]

    assert len({each.uuid() for each in (first, again, sized, added)}) == 4


def test_inductor_takes_it_and_puts_the_uuid_in_its_cache_key() -> None:
    passes = PostGradPasses(pipeline_of())

    with inductor_config.patch(post_grad_custom_post_pass=passes):
        details = FxGraphHashDetails(None, [], {}, [])

    assert details.post_grad_custom_post_pass == passes.uuid()
