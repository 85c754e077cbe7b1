"""The report as data and as text."""

from __future__ import annotations

import json

import torch
from torch import Tensor

import fx_passes
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
    assert "fuse_swiglu: 0 matched, 0 near misses" in text


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

    assert "r: not tried, this process has no operator npu::x" in str(report)
    assert str(fx_passes.Report(passes=())) == "no pass ran"
