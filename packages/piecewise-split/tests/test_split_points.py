"""Which nodes cut."""

from __future__ import annotations

import operator  # noqa: F401 - the remedy that a message names
from typing import TYPE_CHECKING

import pytest
import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from piecewise_split import SplittingOpError, plan_split
from piecewise_split.planning.split_points import find_split_points
from piecewise_split.testing import dynamo_graph

if TYPE_CHECKING:
    from collections.abc import Callable

ps_test = torch.ops.ps_test


@pytest.fixture
def graph() -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(ps_test.mix, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(ps_test.scale.by, (b, 2.0))
    graph.output(graph.call_function(ps_test.scale.default, (c,)))
    return graph


def found(graph: Graph, *names: object) -> dict[str, str]:
    points = find_split_points(graph, names)  # type: ignore[arg-type]
    return {node.name: name for node, name in points.operators.items()}


def test_find_split_points_packet_and_overload_both_found(graph: Graph) -> None:
    assert found(graph, "ps_test::mix") == {"mix": "ps_test::mix", "mix_default": "ps_test::mix"}


def test_find_split_points_one_overload_named_only_it_found(graph: Graph) -> None:
    assert found(graph, ps_test.scale.by) == {"scale_by": "ps_test::scale.by"}


def test_find_split_points_repeated_names_counted_once(graph: Graph) -> None:
    points = find_split_points(graph, ["ps_test::mix", "ps_test.mix", ps_test.mix])

    assert points.requested == ("ps_test::mix",)


def test_find_split_points_absent_name_raises_with_near_names(graph: Graph) -> None:
    with pytest.raises(SplittingOpError, match="ps_test::mix") as caught:
        find_split_points(graph, ["ps_test::mixx", "ps_test::scale"])

    assert caught.value.absent == ("ps_test::mixx",)
    assert "near names in the graph: ps_test::mix" in str(caught.value)
    assert "allow_absent=True" in str(caught.value)


X, W = torch.randn(4, 8), torch.randn(8, 8)


def branches(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.cond(x.sum() > 0, ps_test.mix, lambda x: ps_test.mix(x) + 1, (x,))
    return result * 2


@pytest.mark.parametrize(
    ("model", "inputs", "name", "reason"),
    [
        (
            lambda x, w: functional.linear(x, w) * 2,
            (X, W),
            "aten::linear",
            r"Dynamo keeps the Python function torch\._C\._nn\.linear .*test_split_points\.py:\d+",
        ),
        (
            lambda x: functional.scaled_dot_product_attention(x, x, x) + 1,
            (X[None],),
            "aten::scaled_dot_product_attention",
            r"function torch\._C\._nn\.scaled_dot_product_attention ",
        ),
        (lambda x, w: x @ w + 1, (X, W), "aten::matmul", "Python function _operator.matmul "),
        (lambda x: x.softmax(-1) + 1, (X,), "aten::softmax.int", "the method torch.Tensor.softmax"),
        (branches, (X,), "ps_test::mix", r"'mix', .*:\d+ inside a branch or body of node 'cond'"),
    ],
)
def test_absent_operator_that_is_spelt_otherwise_is_explained(
    model: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], name: str, reason: str
) -> None:
    module, _ = dynamo_graph(model, *inputs)

    with pytest.raises(SplittingOpError, match=reason):
        plan_split(module, [name])


def test_absent_operator_of_dynamos_graph_lists_what_it_calls() -> None:
    module, _ = dynamo_graph(lambda x, w: functional.linear(x, w) @ w, X, W)
    with pytest.raises(SplittingOpError, match=r"calls torch\._C\._nn\.linear, _op"):
        plan_split(module, ["aten::mm"])


@pytest.mark.parametrize("name", ["aten::linear", "aten::linear.default"])
def test_absent_composite_operator_of_an_aten_graph_is_explained(name: str) -> None:
    module = make_fx(functional.linear)(X, W)
    with pytest.raises(SplittingOpError, match=r"none of this composite operator"):
        plan_split(module, [name])


def test_absent_operator_with_overloads_of_torchscript_is_explained() -> None:
    # aten::cos.int is one: the dispatcher does not know it.
    with pytest.raises(SplittingOpError, match="'aten::cos' occurs nowhere in it"):
        find_split_points(make_fx(lambda x: x + 1)(X).graph, ["aten::cos"])


def test_find_split_points_absent_name_allowed_is_reported(graph: Graph) -> None:
    points = find_split_points(graph, ["other::op", "ps_test::mix"], allow_absent=True)

    assert points.absent == ("other::op",)
    assert len(points.operators) == 2


def test_find_split_points_general_and_special_name_both_present(graph: Graph) -> None:
    points = find_split_points(graph, ["ps_test::scale", "ps_test::scale.by"])

    assert points.absent == ()
    assert set(points.operators.values()) == {"ps_test::scale"}
