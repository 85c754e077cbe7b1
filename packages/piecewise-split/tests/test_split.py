"""Pieces built from a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import PlanMismatchError, SplitPlan, plan_split, split
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
    parts = split(module, plan)

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
    parts = split(module, plan)

    by_name = {node.name: node for node in module.graph.nodes}
    first = parts.pieces[0].graph
    for node in first.nodes:
        if node.op != "output":
            assert node.meta == by_name[node.name].meta
            assert node.meta is not by_name[node.name].meta


def test_split_graph_module_made_once_and_on_demand(module: GraphModule, plan: SplitPlan) -> None:
    piece = split(module, plan).pieces[0]

    assert "graph_module" not in vars(piece.code)
    assert piece.graph_module is piece.graph_module
    assert "layer_norm" in piece.graph_module.code


def test_split_plan_from_json_builds_the_same(module: GraphModule, plan: SplitPlan) -> None:
    again = split(module, SplitPlan.from_json(plan.to_json()))

    assert [p.graph.python_code("self").src for p in again.pieces] == [
        p.graph.python_code("self").src for p in split(module, plan).pieces
    ]


def test_split_plan_of_another_graph_raises(decoder: Make, plan: SplitPlan) -> None:
    other = dynamo_graph(decoder(3), torch.randn(4, 8))[0]

    with pytest.raises(PlanMismatchError, match="not in the plan"):
        split(other, plan)


def test_split_graph_changed_after_planning_raises(module: GraphModule, plan: SplitPlan) -> None:
    norm = next(node for node in module.graph.nodes if "layer_norm" in node.name)
    norm.args = (*norm.args[:4], 1e-3)

    with pytest.raises(PlanMismatchError, match="structural key of piece_0"):
        split(module, plan)


def test_split_plan_with_other_order_raises(module: GraphModule, plan: SplitPlan) -> None:
    first, second, *rest = plan.pieces
    swapped = (
        dataclasses.replace(second, index=0, name="piece_0"),
        dataclasses.replace(first, index=1, name="piece_1"),
        *rest,
    )

    with pytest.raises(PlanMismatchError, match="does not keep the order"):
        split(module, dataclasses.replace(plan, pieces=swapped))


def test_split_plan_with_unknown_side_input_raises(module: GraphModule, plan: SplitPlan) -> None:
    first, *rest = plan.pieces
    edited = dataclasses.replace(first, side_inputs=("nothing",))

    with pytest.raises(PlanMismatchError, match="side input 'nothing' of piece_0"):
        split(module, dataclasses.replace(plan, pieces=(edited, *rest)))


def test_split_plan_with_wrong_inputs_raises(module: GraphModule, plan: SplitPlan) -> None:
    first, *rest = plan.pieces
    edited = dataclasses.replace(first, inputs=first.inputs[::-1])

    with pytest.raises(PlanMismatchError, match="inputs of piece_0"):
        split(module, dataclasses.replace(plan, pieces=(edited, *rest)))


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
    assert len({id(piece.code) for piece in split(module, plan).pieces}) == 2
