"""Copies that remain after re-inplacing, and the reported reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

import fx_passes
from fx_passes.functional import ReinplacePass
from fx_passes.functional.reinplace import reinplace_graph

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


class Builder:
    """A functional graph of one input [4, 4] that is written at its end."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.graph = Graph()
        self.x = self.graph.placeholder("x")
        with self.mode:
            self.x.meta["val"] = torch.empty(4, 4)

    def call(self, target: torch._ops.OpOverload, *args: object) -> Node:
        node = self.graph.call_function(target, args)  # type: ignore[arg-type]
        values = [each.meta["val"] if isinstance(each, Node) else each for each in args]
        with self.mode:
            node.meta["val"] = target(*values)
        return node

    def end(self, value: Node, *outputs: Node) -> Graph:
        self.call(aten.copy_.default, self.x, value)
        self.graph.output(outputs)
        return self.graph

    def targets(self) -> list[object]:
        return [node.target for node in self.graph.nodes if node.op == "call_function"]


def _reader(build: Builder) -> Graph:
    new = build.call(aten.add.Tensor, build.x, 1)
    return build.end(new, build.call(aten.neg.default, build.x))


def _old_value_as_output(build: Builder) -> Graph:
    view = build.call(aten.t.default, build.x)
    new = build.call(aten.add.Tensor, build.x, 1)
    return build.end(new, view)


def _perhaps_a_copy(build: Builder) -> Graph:
    view = build.call(aten.reshape.default, build.x, [16])
    new = build.call(aten.add.Tensor, view, 1)
    return build.end(build.call(aten.view.default, new, [4, 4]))


def _other_place(build: Builder) -> Graph:
    new = build.call(aten.add.Tensor, build.x, 1)
    return build.end(build.call(aten.t.default, new))


def _reads_its_memory(build: Builder) -> Graph:
    turned = build.call(aten.t.default, build.x)
    return build.end(build.call(aten.add.Tensor, build.x, turned))


def _twice_from_one_value(build: Builder) -> Graph:
    first = build.call(aten.add.Tensor, build.x, 1)
    second = build.call(aten.mul.Tensor, build.x, 2)
    return build.end(first, second)


def _other_dtype(build: Builder) -> Graph:
    new = build.call(aten.ge.Scalar, build.x, 1)
    return build.end(new)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_reader, "`neg_default` reads the old value of `x` later"),
        (_old_value_as_output, "`output` reads the old value of `x` later"),
        (_perhaps_a_copy, "`reshape_default` may be a copy of what it views"),
        (_other_place, "`copy__default` copies another part of it into `x`"),
        (_reads_its_memory, "it reads `t_default`, which shares memory with `x`"),
        (_twice_from_one_value, "`mul_tensor` reads the old value of `x` later"),
        (_twice_from_one_value, "`output` reads it after `copy__default` wrote `x`"),
        (_other_dtype, "its dtype or shape is not that of `x`"),
    ],
    ids=lambda each: getattr(each, "__name__", "").strip("_"),
)
def test_reinplace_value_that_is_needed_otherwise_stays_a_copy(
    make: Callable[[Builder], Graph], reason: str
) -> None:
    build = Builder()
    graph = make(build)
    module = GraphModule(torch.nn.Module(), graph)
    x = torch.arange(16.0).view(4, 4)
    expected = x.clone()
    results = module(expected)
    before = build.targets()

    report = reinplace_graph(module.graph)

    assert reason in [miss.reason for miss in report.near_misses]
    assert "was computed elsewhere" in report.near_misses[-1].reason
    assert build.targets() == before
    module.recompile()
    assert all(map(torch.equal, (*module(x), x), (*results, expected)))


def test_reinplace_second_run_changes_nothing() -> None:
    build = Builder()
    new = build.call(aten.add.Tensor, build.x, 1)
    graph = build.end(build.call(aten.mul.Tensor, new, 2))
    module = GraphModule(torch.nn.Module(), graph)
    pipeline = fx_passes.Pipeline(passes=(ReinplacePass(),))

    first, second = pipeline.run(module), pipeline.run(module)

    found = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert found == [aten.add_.Tensor, aten.mul_.Tensor]
    assert first.modified
    assert not second.modified
    assert "not functional" in second.report.near_misses()[0].reason


def test_reinplace_value_that_no_input_takes_back_stays_as_it_is() -> None:
    build = Builder()
    part = build.call(aten.select.int, build.x, 0, 0)
    new = build.call(aten.select_scatter.default, build.x, build.call(aten.neg.default, part), 0, 0)
    build.graph.output((new,))

    report = reinplace_graph(build.graph)

    assert [miss.reason for miss in report.near_misses] == ["`x` must keep its value"]
    assert build.targets()[-1] is aten.select_scatter.default
