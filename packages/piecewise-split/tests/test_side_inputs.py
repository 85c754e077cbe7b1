"""Declared side inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import Piece, SplittingOpError, plan_split, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable

ps_test = torch.ops.ps_test


@pytest.fixture
def module() -> GraphModule:
    graph = Graph()
    x, cache = graph.placeholder("x"), graph.placeholder("cache")
    a = graph.call_function(torch.sin, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(torch.cos, (b,))
    d = graph.call_function(ps_test.mix.default, (c,))
    graph.output((d, graph.call_function(torch.mul, (cache, graph.get_attr("weight")))))
    return GraphModule({"weight": torch.full((3,), 2.0)}, graph)


def test_side_inputs_by_operator_reach_every_piece_that_calls_it(module: GraphModule) -> None:
    plan = plan_split(module, ["ps_test::mix"], side_inputs={"ps_test.mix": ["cache", "weight"]})

    splitting = [piece for piece in plan.pieces if piece.is_splitting]
    assert [piece.inputs for piece in splitting] == [
        ("sin", "cache", "weight"),
        ("cos", "cache", "weight"),
    ]
    assert all(piece.side_inputs == ("cache", "weight") for piece in splitting)


def test_side_inputs_by_node_reach_that_piece_and_are_passed_on(module: GraphModule) -> None:
    plan = plan_split(module, ["ps_test::mix"], side_inputs={"mix_default_1": ["cache", "sin"]})
    got: dict[str, tuple[object, ...]] = {}

    def compile_piece(piece: Piece) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            got[piece.name] = arguments
            return piece.graph_module.forward(*arguments)

        return run

    x, cache = torch.randn(3), torch.randn(3)
    found = stitch(split(plan), compile_piece)(x, cache)

    assert len(got["piece_1"]) == 1
    assert got["piece_3"][1] is cache
    torch.testing.assert_close(got["piece_3"][2], x.sin())
    torch.testing.assert_close(found, module(x, cache))


def test_side_inputs_already_used_are_not_repeated(module: GraphModule) -> None:
    plan = plan_split(module, ["ps_test::mix"], side_inputs={"mix_default": ["sin", "cache"]})

    assert plan.pieces[1].inputs == ("sin", "cache")
    assert plan.pieces[1].side_inputs == ("cache",)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"ps_test::mixx": ["cache"]}, r"neither a splitting op .*near names: ps_test::mix"),
        ({"?": ["cache"]}, "neither a splitting op"),
        ({"sin": ["cache"]}, "neither a splitting op"),
        ({"ps_test::mix": ["cach"]}, r"no such value; near names: cache"),
        ({"mix_default": ["cos"]}, "piece 2 makes it, piece 1 would need it"),
    ],
)
def test_side_inputs_impossible_raise(
    module: GraphModule, declared: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(SplittingOpError, match=message):
        plan_split(module, ["ps_test::mix"], side_inputs=declared)
