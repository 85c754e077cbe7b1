"""Decomposed sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import SplitPlan, UnsupportedGraphError, plan_split, split, stitch
from piecewise_split.planning.size_reads import SizeRead, SizeTable
from piecewise_split.testing import dynamo_graph

Check = Callable[..., SplitPlan]
Build = Callable[..., GraphModule]


def views_by_size(x: torch.Tensor, y: torch.Tensor) -> object:
    doubled = (x * 2).flatten()
    size = x.size()
    mixed = torch.ops.ps_test.mix(doubled)
    by_keyword = mixed.view(size=size)
    by_position = torch.reshape(mixed, x.shape)
    by_dimension = mixed.view(size[0], -1)
    expanded = torch.zeros(x.size()[1:]).expand(x.size())
    full = torch.full(y.size(), 0.5)
    return by_keyword + by_position + by_dimension + expanded + full


@pytest.mark.parametrize("dynamic_dim", [None, 0])
def test_split_sizes_used_across_cut_equal_to_unsplit(
    check_split: Check, dynamic_dim: int | None
) -> None:
    module, arguments = dynamo_graph(
        views_by_size, torch.randn(4, 6), torch.randn(4, 6), dynamic_dim=dynamic_dim
    )

    plan = check_split(module, ["ps_test::mix"], *arguments)

    crossing = {name for piece in plan.pieces for name in (*piece.inputs, *piece.outputs)}
    sizes = {n.name for n in module.graph.nodes if n.op == "call_method" and n.target == "size"}
    assert bool(sizes) == (dynamic_dim is not None)  # Dynamo folds static sizes itself
    assert not crossing & sizes
    assert sizes <= set(plan.dissolved)


def test_split_dynamic_graph_other_size_at_run_time(check_split: Check) -> None:
    module, arguments = dynamo_graph(
        views_by_size, torch.randn(4, 6), torch.randn(4, 6), dynamic_dim=0
    )
    other = [
        7 if isinstance(a, int) else torch.randn(7, 6) if isinstance(a, torch.Tensor) else a
        for a in arguments
    ]

    check_split(module, ["ps_test::mix"], *other)


def test_size_table_static_size_becomes_literals(build: Build) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    graph.output(graph.call_method("view", (x, size)))
    build(graph, torch.randn(2, 3))

    table = SizeTable(graph)

    assert table.replaced[size] == (2, 3)
    assert table.is_dissolved(size)


@pytest.mark.parametrize("level", ["method", "attribute", "aten"])
def test_size_table_dynamic_dimension_without_symbol_input_is_read_once(
    check_split: Check, level: str
) -> None:
    traced, _ = dynamo_graph(lambda x: x + 1, torch.randn(4, 6), dynamic_dim=0)
    value = next(n for n in traced.graph.nodes if n.target == "L_x_").meta["example_value"]
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = value
    if level == "method":
        size = graph.call_method("size", (x,))
    elif level == "attribute":
        size = graph.call_function(getattr, (x, "shape"))
    else:
        size = graph.call_function(torch.ops.aten.sym_size.default, (x,))
    rows = graph.call_function(operator.getitem, (size, 0))
    flat = graph.call_method("flatten", (x,))
    mixed = graph.call_function(torch.ops.ps_test.mix, (flat,))
    viewed = graph.call_method("view", (mixed, rows, -1))
    graph.output((viewed, size))
    module = GraphModule({}, graph)

    reads = SizeTable(graph).reads[size]
    assert [(read.tensor, read.dim) for read in reads] == [(x, 0)]
    assert isinstance(reads[0], SizeRead)
    if level == "aten":
        plan = plan_split(module, ["ps_test::mix"])
    else:
        plan = check_split(module, ["ps_test::mix"], torch.randn(5, 6))
    assert plan.pieces[2].inputs == ("mix", reads[0].name)
    assert plan.dissolved == (rows.name,)


def test_stitch_size_returned_is_a_torch_size(build: Build) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    mixed = graph.call_function(torch.ops.ps_test.mix.default, (x,))
    graph.output((size, mixed))
    module = build(graph, torch.randn(4, 6))

    result = stitch(split(plan_split(module, ["ps_test::mix"])))(torch.randn(4, 6))

    assert isinstance(result, tuple)
    assert type(result[0]) is torch.Size
    assert result[0] == (4, 6)


def test_split_method_called_on_size_works_across_cut(check_split: Check, build: Build) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    mixed = graph.call_function(torch.ops.ps_test.mix.default, (x,))
    count = graph.call_method("numel", (size,))
    graph.output((graph.call_function(torch.add, (mixed, count)),))
    module = build(graph, torch.randn(2, 3))

    check_split(module, ["ps_test::mix"], torch.randn(2, 3))


def test_plan_split_size_without_metadata_across_cut_raises() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    mixed = graph.call_function(torch.ops.ps_test.mix, (x,))
    graph.output((graph.call_method("view", (mixed, size)),))

    with pytest.raises(UnsupportedGraphError, match="'size' reads the whole size of x"):
        plan_split(GraphModule({}, graph), ["ps_test::mix"])


def test_plan_split_size_without_metadata_inside_a_piece_is_left(check_split: Check) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    mixed = graph.call_function(torch.ops.ps_test.mix, (x,))
    size = graph.call_method("size", (x,))
    graph.output((graph.call_method("view", (mixed, size)),))

    check_split(GraphModule({}, graph), ["ps_test::mix"], torch.randn(2, 3))
