"""Launches and bytes of a graph before its fusions and after them."""

from __future__ import annotations

import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm
from fx_passes.reports import CostObserver
from fx_passes.testing import capture_graph, random_tensors


def model(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    added = x + residual
    return torch.ops.npu.npu_rms_norm(added, weight, 1e-5)[0].view(-1).chunk(2)[0], added


def test_launches_are_counted_before_and_after() -> None:
    observer = CostObserver()
    rules = fx_passes.RulePass(name="rules", rules=(fuse_add_rms_norm(),))
    passes = (fx_passes.NormalizePass(), rules)
    graph = capture_graph(model, random_tensors((4, 8), (4, 8), (8,)))

    fx_passes.Pipeline(passes=passes, observers=(observer,)).run(graph)

    assert observer.before is not None
    assert observer.after is not None
    # The sum and the norm; views and elements of tuples launch nothing.
    assert (observer.before.launches, observer.after.launches) == (2, 1)
    assert observer.after.bytes < observer.before.bytes


def test_a_pipeline_that_changes_nothing_costs_the_same() -> None:
    observer = CostObserver()
    graph = capture_graph(lambda x: x.sin(), random_tensors((4, 8)))

    fx_passes.Pipeline(passes=(fx_passes.NormalizePass(),), observers=(observer,)).run(graph)

    assert observer.before == observer.after
    assert observer.after is not None
    assert observer.after.launches == 1
