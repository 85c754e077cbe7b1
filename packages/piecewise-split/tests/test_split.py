"""Pieces built from a plan."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import PlanError, SplitPlan, plan_split, split
from piecewise_split.planning.analysed_graph import AnalysedGraph
from piecewise_split.planning.structural_key import StructureReader
from piecewise_split.testing import dynamo_graph

Make = Callable[[int], torch.nn.Module]
ps_test = torch.ops.ps_test


@pytest.fixture
def module(decoder: Make) -> GraphModule:
    return dynamo_graph(decoder(2), torch.randn(4, 8))[0]


@pytest.fixture
def plan(module: GraphModule) -> SplitPlan:
    return plan_split(module, ["ps_test::attention"])


def test_split_pieces_follow_the_plan(module: GraphModule, plan: SplitPlan) -> None:
    parts = split(plan)

    for piece, planned in zip(parts.pieces, plan.pieces, strict=True):
        assert piece.name == planned.name
        assert piece.index == planned.index
        assert piece.is_splitting == planned.is_splitting
        assert piece.structural_key == planned.structural_key
        assert len(piece.graph.find_nodes(op="placeholder")) == len(piece.input_names)
        output = piece.graph.output_node().args[0]
        assert isinstance(output, tuple)
        assert len(output) == len(piece.output_names)


def test_split_metadata_kept_on_every_node(module: GraphModule, plan: SplitPlan) -> None:
    parts = split(plan)

    by_name = {node.name: node for node in module.graph.nodes}
    first = parts.pieces[0].graph
    for node in first.nodes:
        if node.op != "output":
            assert node.meta == by_name[node.name].meta
            assert node.meta is not by_name[node.name].meta


def test_split_graph_module_made_once_and_on_demand(module: GraphModule, plan: SplitPlan) -> None:
    piece = split(plan).pieces[0]

    assert "graph_module" not in vars(piece)
    assert piece.graph_module is piece.graph_module
    assert "layer_norm" in piece.graph_module.code


def test_split_reads_what_the_plan_analysed(
    plan: SplitPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walked(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(AnalysedGraph, "__init__", walked)
    monkeypatch.setattr(StructureReader, "structure", walked)

    assert len(split(plan).pieces) == len(plan.pieces)


def test_split_plan_without_its_graph_raises(plan: SplitPlan) -> None:
    for stored in (SplitPlan.from_json(plan.to_json()), plan.without_graph()):
        with pytest.raises(PlanError, match="plan of 5 pieces: the plan is without its graph"):
            split(stored)


def test_plan_without_graph_keeps_no_graph_alive(decoder: Make) -> None:
    module = dynamo_graph(decoder(2), torch.randn(4, 8))[0]
    plan = plan_split(module, ["ps_test::attention"]).without_graph()
    graph = weakref.ref(module)

    torch.compiler.reset()
    del module
    gc.collect()

    assert graph() is None
    assert len(plan.pieces) == 5


def test_split_size_cost_grows_linearly_in_graphs_built() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for _ in range(64):
        x = graph.call_function(ps_test.mix.default, (graph.call_function(torch.sin, (x,)),))
    graph.output((x,))
    module = GraphModule({}, graph)

    plan = plan_split(module, ["ps_test::mix"])

    assert len(plan.pieces) == 128
    assert plan.num_distinct == 2
    assert len({id(piece.graph) for piece in split(plan).pieces}) == 2
