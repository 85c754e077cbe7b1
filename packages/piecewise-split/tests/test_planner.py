"""The places at which a graph is cut."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import SplitPlan, plan_split
from piecewise_split.testing import dynamo_graph

Check = Callable[..., SplitPlan]
Build = Callable[..., GraphModule]
aten, ps_test = torch.ops.aten, torch.ops.ps_test


def nodes_of(plan: SplitPlan) -> list[tuple[str, ...]]:
    return [piece.nodes for piece in plan.pieces]


def test_plan_split_no_splitting_op_one_piece(check_split: Check) -> None:
    module, arguments = dynamo_graph(lambda x: (x + 1).sin(), torch.randn(3))

    plan = check_split(module, [], *arguments)

    assert nodes_of(plan) == [("add", "sin")]
    assert str(plan.pieces[0].cut_reason) == "graph start"


def test_plan_split_whole_graph_is_the_splitting_op_one_splitting_piece(
    check_split: Check,
) -> None:
    module, arguments = dynamo_graph(ps_test.mix, torch.randn(3))

    plan = check_split(module, ["ps_test::mix"], *arguments)

    assert [piece.is_splitting for piece in plan.pieces] == [True]


def test_plan_split_consecutive_splitting_ops_share_a_piece(check_split: Check) -> None:
    module, arguments = dynamo_graph(
        lambda x: ps_test.scale(ps_test.mix(x + 1)) + 1, torch.randn(3)
    )

    plan = check_split(module, ["ps_test::mix", "ps_test::scale"], *arguments)

    assert [len(nodes) for nodes in nodes_of(plan)] == [1, 2, 1]
    assert [piece.is_splitting for piece in plan.pieces] == [False, True, False]
    assert plan.pieces[1].cut_reason.operator == "ps_test::mix"
    assert plan.pieces[2].cut_reason.operator == "ps_test::scale"


def test_plan_split_getitem_stays_with_the_tuple_it_unpacks(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        left, right = x.chunk(2)
        mixed = ps_test.mix(left)
        return mixed + right

    graph = dynamo_graph(function, torch.randn(4))[0].graph
    getitems = graph.find_nodes(op="call_function", target=operator.getitem)
    mixed = graph.find_nodes(op="call_function", target=ps_test.mix)[0]
    mixed.append(getitems[1])
    graph.lint()
    module = GraphModule({}, graph)

    plan = check_split(module, ["ps_test::mix"], torch.randn(4))

    assert plan.pieces[0].nodes[1:] == (getitems[0].name, getitems[1].name)
    assert plan.pieces[0].outputs == (getitems[0].name, getitems[1].name)


def test_plan_split_results_of_splitting_op_unpacked_in_its_piece(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        left, right = ps_test.pair(x + 1)
        return left * right

    module, arguments = dynamo_graph(function, torch.randn(4))

    plan = check_split(module, ["ps_test::pair"], *arguments)

    assert len(plan.pieces) == 3
    assert len(plan.pieces[1].nodes) == 3
    assert len(plan.pieces[1].outputs) == 2


def test_plan_split_tuple_without_metadata_unpacked_by_schema() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(ps_test.pair.default, (x,))
    mixed = graph.call_function(ps_test.mix.default, (x,))
    left = graph.call_function(operator.getitem, (pair, 0))
    graph.output((graph.call_function(torch.add, (left, mixed)),))

    plan = plan_split(GraphModule({}, graph), ["ps_test::mix"])

    assert nodes_of(plan)[0] == (pair.name, left.name)


def test_plan_split_indexed_tensor_is_read_after_the_write_before_it(
    check_split: Check,
) -> None:
    def function(x: torch.Tensor, rows: torch.Tensor) -> object:
        out = torch.zeros_like(x)
        ps_test.attention(x, out, "a")
        return out[rows] + out[0]

    module, arguments = dynamo_graph(function, torch.randn(4, 2), torch.tensor([2, 1]))

    plan = check_split(module, ["ps_test::attention"], *arguments)

    getitems = module.graph.find_nodes(op="call_function", target=operator.getitem)
    assert len(getitems) == 2
    assert {node.name for node in getitems} <= set(plan.pieces[2].nodes)


@pytest.mark.parametrize(
    "allocate",
    [
        lambda x: torch.empty(3),
        torch.empty_like,
        lambda x: torch.empty_strided((3,), (1,)),
        lambda x: x.new_empty(3),
        lambda x: (torch.empty_like(x), torch.empty_like(x))[1],
    ],
)
def test_plan_split_piece_that_only_allocates_merges_backwards(
    check_split: Check, allocate: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def function(x: torch.Tensor) -> object:
        doubled = x * 2
        first = torch.zeros_like(x)
        ps_test.attention(doubled, first, "a")
        second = allocate(doubled)
        ps_test.attention(doubled, second, "b")
        return first + second

    module, arguments = dynamo_graph(function, torch.randn(3))

    plan = check_split(module, ["ps_test::attention"], *arguments)

    assert [piece.is_splitting for piece in plan.pieces] == [False, True, True, False]
    assert len(plan.pieces[0].merged) >= 1
    assert plan.pieces[0].nodes[-len(plan.pieces[0].merged) :] == plan.pieces[0].merged
    assert "merged" in str(plan)


def test_plan_split_allocation_like_a_later_result_stays(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        mixed = ps_test.mix(x * 2)
        out = torch.empty_like(mixed)
        ps_test.attention(mixed, out, "a")
        return out

    module, arguments = dynamo_graph(function, torch.randn(3))

    plan = check_split(module, ["ps_test::mix", "ps_test::attention"], *arguments)

    assert [piece.is_splitting for piece in plan.pieces] == [False, True, False, True]
    assert all(not piece.merged for piece in plan.pieces)


def test_plan_split_filled_allocation_stays(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        mixed = ps_test.mix(x * 2)
        out = torch.zeros(3)
        ps_test.attention(mixed, out, "a")
        return out

    module, arguments = dynamo_graph(function, torch.randn(3))

    plan = check_split(module, ["ps_test::mix", "ps_test::attention"], *arguments)

    assert [piece.is_splitting for piece in plan.pieces] == [False, True, False, True]


def test_plan_split_arithmetic_on_sizes_merges_backwards(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        left, right = x * 2, x * 3
        left = ps_test.mix(left)
        rows = x.shape[0] * 2 + 1
        right = ps_test.mix(right)
        return left + right, torch.ones(rows)

    module, arguments = dynamo_graph(function, torch.randn(4), dynamic_dim=0)

    plan = check_split(module, ["ps_test::mix"], *arguments)

    assert [piece.is_splitting for piece in plan.pieces] == [False, True, True, False]
    assert len(plan.pieces[0].merged) == 2


def test_plan_split_scalar_read_from_a_tensor_stays(check_split: Check) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.sin, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    scalar = graph.call_method("item", (y,))
    c = graph.call_function(ps_test.mix.default, (a,))
    graph.output((b, c, scalar))
    scalar.meta["val"] = 1.0

    plan = check_split(GraphModule({}, graph), ["ps_test::mix"], torch.randn(3), torch.ones(()))

    assert nodes_of(plan) == [("sin",), ("mix_default",), ("item",), ("mix_default_1",)]


def test_plan_split_writes_and_views_across_cuts_keep_their_order(check_split: Check) -> None:
    def function(x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        view = cache[:2]
        before = view.sum()
        ps_test.attention(x, cache, "a")
        between = view.clone()
        cache.add_(1)
        ps_test.attention(view, cache[2:], "b")
        cache.mul_(2)
        return before, between, view, cache.t()

    module, arguments = dynamo_graph(function, torch.randn(4, 4), torch.randn(4, 4))

    plan = check_split(module, ["ps_test::attention"], *arguments)

    assert sum(piece.is_splitting for piece in plan.pieces) == 2


def test_plan_split_result_only_written_piece_has_no_outputs(check_split: Check) -> None:
    module, arguments = dynamo_graph(
        lambda x, out: (ps_test.attention(x, out, "a"), out + 1)[1],
        torch.randn(3),
        torch.zeros(3),
    )

    plan = check_split(module, ["ps_test::attention"], *arguments)

    assert plan.pieces[0].outputs == ()


def test_plan_split_aten_level_graph_with_val_metadata(check_split: Check, build: Build) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(aten.split.Tensor, (x, 2))
    halves = [graph.call_function(operator.getitem, (pair, at)) for at in (0, 1)]
    out = graph.call_function(aten.empty_like.default, (halves[0],))
    graph.call_function(ps_test.attention.default, (halves[0], out, "a"))
    graph.output((graph.call_function(aten.add.Tensor, (out, halves[1])),))
    module = build(graph, torch.randn(4))

    plan = check_split(module, ["ps_test.attention"], torch.randn(4))

    assert nodes_of(plan) == [
        ("split_tensor", "getitem", "getitem_1", "empty_like_default"),
        ("attention_default",),
        ("add_tensor",),
    ]


def test_plan_split_constants_between_splitting_ops_make_no_piece(
    check_split: Check, build: Build
) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(ps_test.mix.default, (x,))
    weight = graph.get_attr("weight")
    b = graph.call_function(ps_test.mix.default, (weight,))
    graph.output((graph.call_function(torch.add, (a, b)),))
    module = build(graph, torch.randn(3), attributes={"weight": torch.randn(3)})

    plan = check_split(module, ["ps_test::mix"], torch.randn(3))

    assert nodes_of(plan)[0] == ("mix_default", "mix_default_1")
    assert plan.pieces[0].inputs == ("x", "weight")


def test_plan_split_submodule_called_in_piece(check_split: Check) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> object:
            return self.project(ps_test.mix(self.project(x)))

    module = torch.fx.symbolic_trace(Model().requires_grad_(requires_grad=False))

    plan = check_split(module, ["ps_test::mix"], torch.randn(2, 3))

    assert plan.pieces[2].isomorphic_to == 0


def test_plan_split_higher_order_branches_stay_in_their_piece(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        mixed = ps_test.mix(x)
        return torch.cond(mixed.sum() > 0, lambda t: t + 1, lambda t: t - 1, (mixed,))

    module, arguments = dynamo_graph(function, torch.randn(3))

    plan = check_split(module, ["ps_test::mix"], *arguments)

    assert len(plan.pieces) == 2
    assert plan.pieces[1].inputs == plan.pieces[0].outputs
    assert len(plan.pieces[1].inputs) == 1
