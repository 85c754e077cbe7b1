"""Order, fix-point, conditions, errors that put the graph back, hashes, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from fusions.attention_heads import AttentionHeads, qkv_function, qkv_inputs
from fusions.reference_pipeline import reference_pipeline
from torch import Tensor

import fx_passes
from fx_passes.testing import assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

aten = torch.ops.aten


def _double_negation(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.neg().neg()}


def _to_absolute(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.bound["x"])}


RULE = fx_passes.Rule(name="double_negation", patterns=(_double_negation,), rewrite=_to_absolute)
PIPELINE = fx_passes.Pipeline(
    passes=(fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=(RULE,)))
)


def negations(count: int = 2) -> GraphModule:
    def function(x: Tensor) -> Tensor:
        for _ in range(count):
            x = -x
        return x

    return capture_graph(function, random_tensors((3,), device="cpu"))


def text(module: GraphModule) -> str:
    return str(module.graph)


def test_run_recompiles_once_and_reports() -> None:
    module = negations()
    recompiled: list[int] = []
    original = module.recompile

    def counting() -> object:
        recompiled.append(1)
        return original()

    module.recompile = counting  # type: ignore[method-assign,assignment]

    result = PIPELINE.run(module)

    assert result.modified
    assert recompiled == [1]
    assert result.report.match_counts() == {"double_negation": 1}
    assert torch.equal(module(torch.tensor([-2.0]))[0], torch.tensor([2.0]))


def test_run_that_changes_nothing_does_not_recompile() -> None:
    module = negations()
    PIPELINE.run(module)
    recompiled: list[int] = []
    module.recompile = lambda: recompiled.append(1)  # type: ignore[assignment,return-value]

    result = PIPELINE.run(module)

    assert not result.modified
    assert recompiled == []


def test_rules_run_again_on_what_they_made() -> None:
    def make_pair(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::neg", build.call("aten::neg", match.bound["x"]))}

    def absolute(x: Tensor) -> dict[str, Tensor]:
        return {"y": x.sin()}

    second = fx_passes.Rule(
        name="sin_to_negations", patterns=(absolute,), rewrite=make_pair, accepts_cost=True
    )
    rules = fx_passes.RulePass(name="rules", rules=(RULE, second))
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))
    module = capture_graph(lambda x: x.sin(), random_tensors((3,), device="cpu"))

    report = assert_rewritten(pipeline, module, {"double_negation": 1, "sin_to_negations": 1})

    assert [each.round for each in report.passes] == [1, 1, 2, 3]


def test_rule_that_loops_forever_is_named_and_the_graph_restored() -> None:
    def again(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::neg", build.call("aten::neg", match.bound["x"]))}

    rules = fx_passes.RulePass(name="rules", rules=(replace(RULE, rewrite=again),))
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))
    module = negations()
    before = text(module)

    with pytest.raises(fx_passes.PassError, match=r"after 8 rounds.*double_negation"):
        pipeline.run(module)

    assert text(module) == before
    module.recompile()
    assert torch.equal(module(torch.ones(3))[0], torch.ones(3))


def test_failing_rule_leaves_the_module_as_it_was() -> None:
    seen: list[int] = []

    def third_fails(match: fx_passes.Match) -> None:
        seen.append(1)
        if len(seen) == 3:
            raise ValueError("third")

    rules = fx_passes.RulePass(name="rules", rules=(replace(RULE, check=third_fails),))
    module = negations(8)
    before = text(module)

    with pytest.raises(fx_passes.RuleError, match=r"third.*pass 'rules'.*before it: normalize"):
        fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)).run(module)

    assert text(module) == before
    module.graph.lint()


def test_failing_function_pass_is_named_with_those_before_it() -> None:
    def fail(module: GraphModule) -> bool:
        raise ValueError("no")

    passes = (*PIPELINE.passes, fx_passes.FunctionPass(name="mine", function=fail))

    with pytest.raises(fx_passes.PassError, match=r"'mine': ValueError: no.*normalize, rules"):
        fx_passes.Pipeline(passes=passes).run(negations())


def test_order_constraint_is_checked_when_the_pipeline_is_made() -> None:
    late = fx_passes.RulePass(name="rules", rules=(RULE,), after=("normalize",))

    with pytest.raises(fx_passes.PipelineError, match=r"'rules' must come after \['normalize'\]"):
        fx_passes.Pipeline(passes=(late, fx_passes.NormalizePass()))


def test_names_are_unique() -> None:
    with pytest.raises(fx_passes.PipelineError, match="two passes are named 'normalize'"):
        fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), fx_passes.NormalizePass()))
    with pytest.raises(fx_passes.PipelineError, match="two rules are named"):
        fx_passes.RulePass(name="rules", rules=(RULE, RULE))


def test_without_leaves_out_passes_and_rules_and_knows_near_names() -> None:
    pipeline = fx_passes.default_npu_pipeline()

    assert "fuse_swiglu" not in pipeline.without("fuse_swiglu").names()
    assert pipeline.without("npu_fusions", "noops").names() == [
        "normalize",
        "forward_copies",
        "share_equal_calls",
        "fold_constants",
    ]
    with pytest.raises(fx_passes.PipelineError, match=r"'fuse_swigloo'.*near: fuse_swiglu"):
        pipeline.without("fuse_swigloo")


def test_hash_is_the_same_in_another_process() -> None:
    # The operators that a process has are part of the hash; other tests define some in this one.
    program = "import fx_passes; print(fx_passes.default_npu_pipeline().hash())"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(hashes) == 1


def test_hash_changes_with_rules_order_and_source() -> None:
    def other(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::exp", match.bound["x"])}

    def with_rule(rule: fx_passes.Rule) -> str:
        rules = fx_passes.RulePass(name="rules", rules=(rule,))
        return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)).hash()

    hashes = {
        PIPELINE.hash(),
        with_rule(replace(RULE, rewrite=other)),
        with_rule(replace(RULE, name="other")),
        PIPELINE.without("normalize").hash(),
        fx_passes.default_npu_pipeline().hash(),
    }

    assert len(hashes) == 5
    assert with_rule(RULE) == PIPELINE.hash()
    assert PIPELINE.observed_by(fx_passes.TimingObserver()).hash() == PIPELINE.hash()


class Negate(fx_passes.GraphPass):
    """A pass as a user writes it: `run` and a name."""

    def run(self, graph_module: GraphModule) -> fx_passes.PassReport:
        calls = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
        for call in calls:
            call.target = self.target()
        return fx_passes.PassReport(name=self.name, modified=bool(calls))

    def target(self) -> object:
        return torch.ops.aten.exp.default


class NegateOtherwise(Negate):
    def target(self) -> object:
        return torch.ops.aten.abs.default


def test_a_pass_is_a_class_with_run_and_a_name() -> None:
    module = negations()
    passes = (fx_passes.NormalizePass(), Negate(name="negate"))

    result = fx_passes.Pipeline(passes=passes).run(module)

    assert result.modified
    assert "aten.exp" in text(module)
    assert "aten.neg" not in text(module)


def test_the_fingerprint_of_a_pass_changes_with_its_methods_and_fields() -> None:
    once = Negate(name="negate").fingerprint()

    assert once == Negate(name="negate").fingerprint()
    others = (
        NegateOtherwise(name="negate"),
        Negate(name="other"),
        Negate(name="negate", repeats=True),
    )
    assert len({once, *(each.fingerprint() for each in others)}) == 4


def test_two_pipelines_in_one_process_do_not_disturb_each_other() -> None:
    first, second = AttentionHeads(), AttentionHeads(num_heads=8, num_kv_heads=4, head_dim=32)
    for _ in range(2):
        for heads in (first, second):
            module = capture_graph(qkv_function(heads), qkv_inputs(heads))
            assert_rewritten(reference_pipeline(), module, {"fuse_split_qkv_rms_norm_rope": 1})


def test_one_pipeline_runs_in_many_threads() -> None:
    heads = AttentionHeads()
    modules = [capture_graph(qkv_function(heads), qkv_inputs(heads)) for _ in range(16)]
    pipeline = reference_pipeline()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(pipeline.run, modules))

    assert {str(result.report) for result in results} == {str(results[0].report)}
    assert len({text(module) for module in modules}) == 1
    assert results[0].report.match_counts()["fuse_split_qkv_rms_norm_rope"] == 1


def test_exact_keeps_only_rules_with_the_same_bits() -> None:
    rounding = replace(RULE, name="rounding", numerics="rounding")
    rules = fx_passes.RulePass(name="rules", rules=(RULE, rounding))
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))

    assert pipeline.exact().names() == ["normalize", "rules", "double_negation"]
