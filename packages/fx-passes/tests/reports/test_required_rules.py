"""Runs that fail where a wished rule matched nothing, and say why it did not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm, fuse_swiglu
from fx_passes.testing import capture_graph, random_tensors

NORM = "fuse_add_rms_norm"


def pipeline() -> fx_passes.Pipeline:
    waiting = fx_passes.Rule(
        name="waiting", patterns=(_pattern,), rewrite=_rewrite, operators=("nobody::has_this",)
    )
    rules = (fuse_add_rms_norm(), fuse_swiglu(), waiting)
    return fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=rules))
    )


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.abs()}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, torch.fx.Node]:
    return {"y": build.call("aten::relu", match.bound["x"])}


def norm_graph(alpha: int = 1, norms: int = 1) -> torch.fx.GraphModule:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        for _ in range(norms):
            total = torch.add(x, residual, alpha=alpha)
            x = torch.ops.npu.npu_rms_norm(total, weight, 1e-5)[0]
        return x

    return capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))


def test_a_rule_that_matched_is_content() -> None:
    result = pipeline().run(norm_graph(), require=(NORM,))

    assert result.report.match_counts()[NORM] == 1


def test_a_rule_that_nearly_matched_is_an_error_with_the_reason() -> None:
    with pytest.raises(fx_passes.RuleError) as caught:
        pipeline().run(norm_graph(alpha=3), require=(NORM,))

    text = str(caught.value)
    assert "'fuse_add_rms_norm'" in text
    assert "1 near misses" in text
    assert "expected 1, found 3" in text


def test_the_graph_is_as_it_was() -> None:
    module = norm_graph()
    before = str(module.graph)

    with pytest.raises(fx_passes.RuleError):
        pipeline().run(module, require=(NORM, "fuse_swiglu"))

    assert str(module.graph) == before


def test_absent_calls_and_operators_that_nobody_has_are_said() -> None:
    with pytest.raises(fx_passes.RuleError) as caught:
        pipeline().run(norm_graph(), require=("fuse_swiglu", NORM, "waiting"))

    text = str(caught.value)
    assert "the graph has no call of" in text
    assert "this process has no operator nobody::has_this" in text
    assert NORM not in text


def test_of_many_near_misses_a_part_is_shown() -> None:
    with pytest.raises(fx_passes.RuleError) as caught:
        pipeline().run(norm_graph(alpha=3, norms=40), require=(NORM,))

    text = str(caught.value)
    assert "40 near misses" in text
    assert text.count("found 3") == 10
    assert "and 30 more" in text


def test_a_name_that_no_rule_has_is_refused_before_anything_runs() -> None:
    module = norm_graph()
    before = str(module.graph)

    with pytest.raises(fx_passes.PipelineError, match=r"fuse_ad_rms_norm.*near: fuse_add_rms_norm"):
        pipeline().run(module, require=("fuse_ad_rms_norm",))
    with pytest.raises(fx_passes.PipelineError, match=r"`require` is one name.*\('fuse_swiglu',\)"):
        pipeline().run(module, require="fuse_swiglu")  # type: ignore[arg-type]
    with pytest.raises(fx_passes.PipelineError, match=r"'rules'.*no rule"):
        pipeline().run(module, require=("rules",))

    assert str(module.graph) == before


def test_reports_of_several_graphs_are_checked_together() -> None:
    first = pipeline().run(norm_graph(alpha=3)).report
    second = pipeline().run(norm_graph()).report
    both = fx_passes.Report(passes=(*first.passes, *second.passes))

    both.require(NORM)

    with pytest.raises(fx_passes.RuleError, match="expected 1, found 3"):
        first.require(NORM)
    with pytest.raises(fx_passes.RuleError, match=r"'nothing': no pass tried it"):
        both.require("nothing")
