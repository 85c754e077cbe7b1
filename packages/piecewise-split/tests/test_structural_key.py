"""When two pieces are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import SplitPlan, plan_split, split, stitch
from piecewise_split.testing import dynamo_graph

Build = Callable[..., GraphModule]
ps_test = torch.ops.ps_test


def two_pieces(build: Build, first: object, second: object) -> SplitPlan:
    """Plan a graph of two calls of ``torch.clamp`` or of given functions around a cut."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    outputs = []
    for value, argument in ((x, first), (y, second)):
        if callable(argument):
            outputs.append(graph.call_function(argument, (value,)))
        else:
            outputs.append(graph.call_function(torch.clamp, (value, argument)))  # type: ignore[arg-type]
        outputs.append(graph.call_function(ps_test.mix.default, (outputs[-1],)))
    graph.output(tuple(outputs))
    return plan_split(build(graph), ["ps_test::mix"])


def are_equal(plan: SplitPlan) -> bool:
    first, second = plan.pieces[0], plan.pieces[2]
    assert (second.isomorphic_to == 0) == (first.structural_key == second.structural_key)
    return second.isomorphic_to == 0


def test_structure_equal_calls_equal(build: Build) -> None:
    assert are_equal(two_pieces(build, 1, 1))


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 2), (1, 1.0), (1, True), (0.0, -0.0), (None, 0), (torch.sin, torch.cos)],
)
def test_structure_other_literal_or_function_differs(
    build: Build, first: object, second: object
) -> None:
    assert not are_equal(two_pieces(build, first, second))


def test_structure_functions_of_one_name_differ(build: Build) -> None:
    def make(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def scale(x: torch.Tensor) -> torch.Tensor:
            return x * by

        return scale

    same = make(2.0)
    assert are_equal(two_pieces(build, same, same))
    assert not are_equal(two_pieces(build, make(2.0), make(3.0)))


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(4, 3),
        torch.zeros(3, 4, dtype=torch.float64),
        torch.zeros(4, 3).t(),
        torch.zeros(3, 4, device="meta"),
        torch.zeros(3, 4, requires_grad=True),
    ],
    ids=["shape", "dtype", "stride", "device", "requires_grad"],
)
def test_structure_other_input_signature_differs(build: Build, other: torch.Tensor) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.sin, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(torch.sin, (y,))
    graph.output((a, b, c))
    x.meta["val"] = torch.zeros(3, 4)
    module = GraphModule({}, graph)

    y.meta["val"] = torch.zeros(3, 4)
    assert are_equal(plan_split(module, ["ps_test::mix"]))
    y.meta["val"] = other
    assert not are_equal(plan_split(module, ["ps_test::mix"]))


def test_structure_same_value_twice_differs_from_two_values(build: Build) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.add, (x, y))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(torch.add, (x, x))
    graph.output((a, b, c))

    assert not are_equal(plan_split(build(graph), ["ps_test::mix"]))


@pytest.mark.parametrize("dynamic_dim", [None, 0])
def test_structure_equal_layers_are_built_once(
    decoder: Callable[[int], torch.nn.Module], dynamic_dim: int | None
) -> None:
    layers = 8
    model = decoder(layers)
    x = torch.randn(4, 8)
    module, arguments = dynamo_graph(model, x, dynamic_dim=dynamic_dim)

    plan = plan_split(module, ["ps_test::attention"])
    parts = split(plan)

    assert len(plan.pieces) == 2 * layers + 1
    graphs = {id(piece.graph_module) for piece in parts.pieces if not piece.is_splitting}
    assert len(graphs) == 3  # the first, the last, and the layers - 1 between two attentions
    assert {piece.isomorphic_to for piece in plan.pieces[2:-1:2]} == {2}
    torch.testing.assert_close(stitch(parts)(*arguments), (model(x),), rtol=0, atol=0)


def test_structural_key_computed_by_another_process_is_the_same(build: Build) -> None:
    program = (
        "import json, torch; from torch.fx import Graph, GraphModule;"
        "from piecewise_split import plan_split;"
        "g = Graph(); x = g.placeholder('other_name'); x.meta['val'] = torch.zeros(2, 3);"
        "y = g.call_function(torch.clamp, (x, 1.5));"
        "z = g.call_function(torch.ops.aten.mm.default, (y, y));"
        "g.output((z,));"
        "plan = plan_split(GraphModule({}, g), ['aten::mm']);"
        "print(json.dumps([p.structural_key for p in plan.pieces]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=900
    )
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(2, 3)
    y = graph.call_function(torch.clamp, (x, 1.5))
    graph.output((graph.call_function(torch.ops.aten.mm.default, (y, y)),))

    plan = plan_split(GraphModule({}, graph), ["aten::mm"])

    assert json.loads(result.stdout) == [piece.structural_key for piece in plan.pieces]
