from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from piecewise_split import (
    Piece,
    SizeRange,
    SizeRangeError,
    compile_by_size,
    plan_split,
    split,
    stitch,
)
from piecewise_split.testing import dynamo_graph
from piecewise_split.torch_internals import mark_dynamic

if TYPE_CHECKING:
    from collections.abc import Callable

ps_test = torch.ops.ps_test
RANGES = [SizeRange(9, 32), SizeRange(2, 8), SizeRange(64, 64)]


def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = ps_test.mix(x @ weight)
    result: torch.Tensor = ps_test.mix(x.sin()).view(x.size()) @ weight
    return result


def graph(rows: int = 6) -> tuple[torch.fx.GraphModule, tuple[Any, ...]]:
    x = torch.randn(rows, 4)
    mark_dynamic(x, 0)
    return dynamo_graph(model, x, torch.randn(4, 4))


class Compiler:
    """Runs pieces as they are, and notes for which range."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, str]] = []
        self.ran: list[tuple[str, str]] = []

    def __call__(self, piece: Piece, sizes: SizeRange) -> Callable[..., object]:
        self.compiled.append((piece.name, str(sizes)))

        def run(*args: object) -> object:
            self.ran.append((piece.name, str(sizes)))
            return piece.graph_module.forward(*args)

        return run


def arguments_of(given: tuple[Any, ...], x: torch.Tensor) -> list[Any]:
    """Return arguments of the graph with other rows, and their number where it is one."""
    return [
        x
        if isinstance(each, torch.Tensor) and each.shape == (6, 4)
        else x.shape[0]
        if isinstance(each, int)
        else each
        for each in given
    ]


def test_each_piece_is_compiled_for_each_range_and_runs_that_of_its_size() -> None:
    module, given = graph()
    weight = next(each for each in given if getattr(each, "shape", None) == (4, 4))
    compiler = Compiler()
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    stitched = stitch(parts, compile_by_size(compiler, RANGES))
    names = [piece.name for piece in parts.pieces]
    assert compiler.compiled == [
        (name, sizes) for name in names for sizes in ("2 to 8", "9 to 32", "64 to 64")
    ]
    for rows, sizes in ((2, "2 to 8"), (8, "2 to 8"), (9, "9 to 32"), (64, "64 to 64")):
        compiler.ran.clear()
        x = torch.randn(rows, 4)
        found: Any = stitched(*arguments_of(given, x))
        torch.testing.assert_close(found[0], model(x, weight))
        assert compiler.ran == [(name, sizes) for name in names]


@pytest.mark.parametrize("rows", [1, 33, 63, 65])
def test_size_in_no_range_is_named_with_its_piece(rows: int) -> None:
    module, given = graph()
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    stitched = stitch(parts, compile_by_size(Compiler(), RANGES))
    with pytest.raises(SizeRangeError, match=rf"Calling piece_0.*size is {rows}, .* 64 to 64"):
        stitched(*arguments_of(given, torch.randn(rows, 4)))


def test_static_pieces_are_compiled_once_for_all_sizes() -> None:
    module, given = dynamo_graph(lambda x: ps_test.mix(x.sin()) + 1, torch.randn(4))
    compiler = Compiler()
    stitched = stitch(
        split(module, plan_split(module, ["ps_test::mix"])), compile_by_size(compiler, RANGES)
    )
    stitched(*given)
    assert compiler.compiled == [(f"piece_{index}", "2 to 64") for index in range(3)]


def test_several_symbols_ask_for_a_name() -> None:
    x, y = torch.randn(6, 4), torch.randn(5, 4)
    for each in (x, y):
        mark_dynamic(each, 0)
    module, given = dynamo_graph(lambda x, y: ps_test.mix(torch.cat([x, y])) + 1, x, y)
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    with pytest.raises(
        SizeRangeError,
        match=r"Compiling piece_0.*2 symbols, expected one: "
        r"s\d+ \(dimension 0 of input 'l_x_'.*\), s\d+ "
        r"\(dimension 0 of input 'l_y_'.*\)\. Name .*symbol='s\d+'",
    ):
        stitch(parts, compile_by_size(Compiler(), RANGES))
    symbols = [
        str(node.meta["example_value"].shape[0])
        for node in module.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta["example_value"], torch.Tensor)
    ]
    compiler = Compiler()
    stitched = stitch(parts, compile_by_size(compiler, RANGES, symbol=symbols[1]))
    stitched(*given)
    # Of the pieces behind the first one none has the size of y itself.
    assert compiler.ran[0] == ("piece_0", "2 to 8")
    assert set(compiler.ran[1:]) == {("piece_1", "2 to 64"), ("piece_2", "2 to 64")}


def test_symbol_that_no_piece_has_is_refused_before_anything_is_compiled() -> None:
    module, _ = graph()
    compiler = Compiler()
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    with pytest.raises(
        SizeRangeError,
        match=r"Compiling piece_0.* any piece of the graph has the size 's0', expected one of "
        r"s\d+ \(.*dimension 0 of input 'l_x_'",
    ):
        stitch(parts, compile_by_size(compiler, RANGES, symbol="s0"))
    assert compiler.compiled == []


def test_symbol_of_a_static_graph_is_refused() -> None:
    module, _ = dynamo_graph(lambda x: ps_test.mix(x.sin()) + 1, torch.randn(4))
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    with pytest.raises(
        SizeRangeError, match=r"none has any symbol\. Mark the dimension as dynamic"
    ):
        stitch(parts, compile_by_size(Compiler(), RANGES, symbol="s0"))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "no range is given"),
        ([SizeRange(1, 8), SizeRange(8, 9)], "ranges 1 to 8 and 8 to 9 have sizes in common"),
    ],
)
def test_ranges_that_cannot_be_chosen_from_are_refused(
    ranges: list[SizeRange], message: str
) -> None:
    with pytest.raises(SizeRangeError, match=message):
        compile_by_size(Compiler(), ranges)


def test_range_without_a_size_is_refused() -> None:
    with pytest.raises(SizeRangeError, match="begins at 9 and ends at 8"):
        SizeRange(9, 8)
