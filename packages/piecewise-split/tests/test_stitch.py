"""The flat function."""

from __future__ import annotations

import collections
import gc
import inspect
import traceback
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import Piece, SplitPlan, plan_split, split, stitch
from piecewise_split.testing import dynamo_graph

Check = Callable[..., SplitPlan]
ps_test = torch.ops.ps_test
Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024  a plain tuple class


def chain(length: int) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    for _ in range(length):
        x = graph.call_function(ps_test.mix.default, (graph.call_function(torch.sin, (x,)),))
    graph.output((x,))
    return GraphModule({}, graph)


def test_stitch_compile_piece_called_once_for_each_piece_in_order() -> None:
    module = chain(3)
    seen: list[str] = []

    def compile_piece(piece: Piece) -> Callable[..., object]:
        seen.append(piece.name)
        return piece.graph_module.forward

    stitch(split(plan_split(module, ["ps_test::mix"])), compile_piece)

    assert seen == [f"piece_{i}" for i in range(6)]


def test_stitch_compiled_pieces_are_what_runs() -> None:
    module = chain(2)
    calls: list[tuple[int, bool]] = []

    def compile_piece(piece: Piece) -> Callable[..., object]:
        def run(*arguments: torch.Tensor) -> list[torch.Tensor]:
            calls.append((piece.index, piece.is_splitting))
            return [arguments[0] + 1]

        return run

    stitched = stitch(split(plan_split(module, ["ps_test::mix"])), compile_piece)

    torch.testing.assert_close(stitched(torch.zeros(2)), (torch.full((2,), 4.0),))
    assert calls == [(0, False), (1, True), (2, False), (3, True)]


def test_stitch_compiled_piece_not_callable_raises() -> None:
    module = chain(1)

    with pytest.raises(TypeError, match=r"piece_0 \(capturable\).*returned NoneType"):
        stitch(split(plan_split(module)), lambda _: None)  # type: ignore[arg-type, return-value]


def test_stitch_value_dead_after_last_use_is_freed_before_the_next_piece() -> None:
    module = chain(3)
    alive: list[list[int]] = []
    produced: list[weakref.ref[torch.Tensor]] = []

    def compile_piece(_: Piece) -> Callable[..., object]:
        def run(argument: torch.Tensor) -> tuple[torch.Tensor]:
            alive.append([at for at, ref in enumerate(produced) if ref() is not None])
            result = argument + 1
            produced.append(weakref.ref(result))
            return (result,)

        return run

    gc.disable()
    try:
        kept = stitch(split(plan_split(module, ["ps_test::mix"])), compile_piece)(torch.zeros(2))
    finally:
        gc.enable()

    assert alive == [[], [0], [1], [2], [3], [4]]
    assert isinstance(kept, tuple)


def test_stitch_unused_output_of_the_graph_is_kept_to_the_end(check_split: Check) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.sin, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(torch.cos, (b,))
    graph.output((a, b, c))

    check_split(GraphModule({}, graph), ["ps_test::mix"], torch.randn(3))


def test_stitch_outputs_nested_and_inputs_and_literals_equal_to_unsplit() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    a = graph.call_function(ps_test.mix.default, (x,))
    output = {
        "a": [a, (x,), ()],
        "pair": Pair(y, None),
        "literals": (1, True, 2.5, float("inf"), "it's", torch.float16, slice(0, 2, None)),
        "again": (a, a, y),
    }
    graph.output(output)
    module = GraphModule({}, graph)
    arguments = (torch.randn(3), torch.randn(3))

    stitched = stitch(split(plan_split(module, ["ps_test::mix"])))
    found = stitched(*arguments)

    assert isinstance(found, dict)
    assert found["literals"] == output["literals"]
    assert type(found["pair"]) is Pair
    assert found["pair"].left is arguments[1]
    assert found["a"][1] == (arguments[0],)
    assert found["again"][0] is found["again"][1] is found["a"][0]
    torch.testing.assert_close(found["a"][0], ps_test.mix.default(arguments[0]))
    assert list(found) == list(output)


def test_stitch_no_pieces_returns_the_inputs() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(x)
    module = GraphModule({}, graph)
    plan = plan_split(module)

    value = torch.randn(2)

    assert plan.pieces == ()
    assert stitch(split(plan))(value) is value


def test_stitch_parameter_default_and_keyword_kept() -> None:
    def double(x: torch.Tensor, by: float = 3.0) -> object:
        return ps_test.mix.default(x) * by

    module = torch.fx.symbolic_trace(double)
    stitched = stitch(split(plan_split(module, ["ps_test::mix"])))
    x = torch.randn(3)

    torch.testing.assert_close(stitched(x), double(x))
    torch.testing.assert_close(stitched(by=2.0, x=x), double(x, 2.0))


def test_stitch_names_that_collide_with_generated_ones_are_kept_apart(check_split: Check) -> None:
    graph = Graph()
    values = [graph.placeholder(name) for name in ("piece_0", "stitched", "bind", "piece_1_1")]
    for value in list(values):
        values.append(graph.call_function(ps_test.mix.default, (value,)))
        values[-1].name = f"{value.name}_1"
    graph.output(tuple(values))

    check_split(GraphModule({}, graph), ["ps_test::mix"], *[torch.randn(3) for _ in range(4)])


def test_stitch_constants_are_the_tensors_of_the_module() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("weight")
    first = graph.call_function(torch.mul, (x, weight))
    mixed = graph.call_function(ps_test.mix.default, (first,))
    graph.output((graph.call_function(torch.mul, (mixed, graph.get_attr("weight"))),))
    own = torch.full((3,), 2.0)
    module = GraphModule({"weight": own}, graph)
    stitched = stitch(split(plan_split(module, ["ps_test::mix"])))
    x_value = torch.randn(3)

    torch.testing.assert_close(stitched(x_value), module(x_value))
    own.fill_(5)
    torch.testing.assert_close(stitched(x_value), module(x_value))


def test_stitch_failing_piece_traceback_shows_the_generated_line() -> None:
    module = chain(2)

    def compile_piece(piece: Piece) -> Callable[..., object]:
        def fail(*_: object) -> object:
            msg = "broken"
            raise RuntimeError(msg)

        return fail if piece.index == 2 else piece.graph_module.forward

    stitched = stitch(split(plan_split(module, ["ps_test::mix"])), compile_piece)
    with pytest.raises(RuntimeError, match="broken") as caught:
        stitched(torch.zeros(2))

    text = "".join(traceback.format_exception(caught.value))
    line = next(line for line in stitched.source.splitlines() if "piece_2(" in line)
    assert line.strip() in text
    assert "cut: after splitting op ps_test::mix" in line


def test_stitch_failing_piece_traceback_names_the_line_of_the_model() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x = ps_test.mix(x.sin())
        return x.view(2, 3)

    module, _ = dynamo_graph(model, torch.randn(6))
    stitched = stitch(split(plan_split(module, ["ps_test::mix"])))

    with pytest.raises(RuntimeError) as caught:
        stitched(torch.randn(7))

    text = "".join(traceback.format_exception(caught.value))
    first = inspect.getsourcelines(model)[1]
    assert "# capturable piece, cut: after splitting op ps_test::mix (x), from " in text
    assert f"tests/test_stitch.py:{first + 2}" in text


def test_stitch_source_is_what_a_reader_expects() -> None:
    module = chain(1)

    stitched = stitch(split(plan_split(module, ["ps_test::mix"])))

    assert stitched.source == (
        "def bind(piece_0, piece_1):\n"
        "    def stitched(x):\n"
        "        sin, = piece_0(x)  # capturable piece, cut: graph start\n"
        "        mix_default, = piece_1(sin)  "
        "# splitting piece, cut: splitting op ps_test::mix (mix_default)\n"
        "        del sin\n"
        "        return (mix_default, )\n"
        "    return stitched\n"
    )


def test_stitch_two_functions_of_one_split_do_not_share_pieces() -> None:
    module = chain(1)
    parts = split(plan_split(module, ["ps_test::mix"]))

    first = stitch(parts, lambda _: lambda x: (x + 1,))
    second = stitch(parts, lambda _: lambda x: (x + 10,))

    assert torch.equal(first(torch.zeros(1))[0], torch.tensor([2.0]))  # type: ignore[index]
    assert torch.equal(second(torch.zeros(1))[0], torch.tensor([20.0]))  # type: ignore[index]


def test_stitch_keeps_no_reference_to_the_graph() -> None:
    module, arguments = dynamo_graph(lambda x: torch.ops.ps_test.mix(x) + 1, torch.randn(4))
    stitched = stitch(split(plan_split(module, ["ps_test::mix"])), lambda _: lambda x: (x,))
    graph = weakref.ref(module.graph)

    torch._dynamo.reset()
    del module
    gc.collect()

    assert graph() is None
    assert stitched(*arguments) is not None
