"""The report as data and as text."""

from __future__ import annotations

import json
import re

import torch
from torch import Tensor

import fx_passes
from fx_passes.raising import raising_pipeline
from fx_passes.testing import capture_graph, random_tensors


def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    npu = torch.ops.npu
    fused = npu.npu_rms_norm(x + residual, weight, 1e-5)[0]
    missed = npu.npu_rms_norm(torch.add(x, residual, alpha=3), weight, 1e-5)[0]
    return fused, missed


def report_of() -> fx_passes.Report:
    module = capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))
    return fx_passes.default_npu_pipeline().run(module).report


def test_report_text_names_matches_near_misses_and_literals() -> None:
    text = str(report_of())

    assert "fuse_add_rms_norm: 1 matched, 1 near misses" in text
    assert "[epsilon=1e-05]" in text
    assert ": expected 1, found 3" in text
    assert "fuse_swiglu" not in text
    assert re.search(r"^  \d+ rules found nothing in the graph$", text, re.MULTILINE)


def test_report_of_a_raising_pipeline_is_as_long_as_what_it_did() -> None:
    module = capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))
    report = raising_pipeline().run(module).report

    lines = str(report).splitlines()

    assert len(report.match_counts()) > 30
    assert len(lines) < 30


def test_report_is_plain_data() -> None:
    report = report_of()

    data = json.loads(json.dumps(report.to_dict()))

    assert len(data["passes"]) == len(report.passes)
    assert len(report.matches("fuse_add_rms_norm")) == 1
    assert len(report.near_misses("fuse_add_rms_norm")) == 1
    assert report.matches("fuse_swiglu") == ()


def test_missing_operator_is_said_in_the_text() -> None:
    rule = fx_passes.RuleReport(rule="r", waiting_for=("npu::x",))
    report = fx_passes.Report(
        passes=(fx_passes.PassReport(name="p", modified=False, rules=(rule,)),)
    )

    assert "r: not tried, this process has no operator npu::x: import torch_npu" in str(report)
    assert "cann-sim run" in str(report)
    assert str(fx_passes.Report(passes=())) == "no pass ran"


def test_rules_that_wait_for_operators_are_one_line_with_the_remedy() -> None:
    rules = tuple(
        fx_passes.RuleReport(rule=f"r{each}", waiting_for=("npu::x", "engine::y"))
        for each in range(9)
    )
    report = fx_passes.Report(passes=(fx_passes.PassReport(name="p", modified=False, rules=rules),))

    first, line = str(report).splitlines()

    assert first == "p (round 1): unchanged"
    assert "9 rules were not tried: this process has no operator engine::y, npu::x" in line
    assert "import the library that registers it" in line
