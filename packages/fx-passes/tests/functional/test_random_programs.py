"""Random programs of views and writes, there and back: results and inputs stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, Node

import fx_passes
from fx_passes.functional import FunctionalBackend
from fx_passes.normal_form.operator_signature import find_operator
from fx_passes.testing import assert_same_values, random_tensors

if TYPE_CHECKING:
    from torch import Tensor

aten = torch.ops.aten
SHAPE = (4, 4)
VIEWS: list[tuple[torch._ops.OpOverload, tuple[object, ...]]] = [
    (aten.t.default, ()),
    (aten.select.int, (0, 1)),
    (aten.select.int, (1, 2)),
    (aten.slice.Tensor, (0, 1, 3)),
    (aten.slice.Tensor, (1, 0, 2)),
    (aten.unsqueeze.default, (0,)),
    (aten.view.default, ([16],)),
]


def _swap(first: Tensor, second: Tensor) -> Tensor:
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)
    return kept.sum()


@pytest.fixture(name="swap", scope="module")
def _swap_operator() -> torch._ops.OpOverload:
    name = "fx_functional_random::swap"
    if find_operator(name) is None:
        torch.library.define(name, "(Tensor(a!) first, Tensor(b!) second) -> Tensor")
        torch.library.impl(name, "CompositeExplicitAutograd", _swap)
        torch.library.register_fake(name, lambda first, second: first.new_empty(()))
    found = find_operator(name)
    assert found is not None
    return found


class Program:
    """Draws a graph; each node has its value on `meta`, as far as shapes go."""

    def __init__(self, data: st.DataObject, swap: torch._ops.OpOverload) -> None:
        self._draw = data.draw
        self._swap = swap
        self.graph = Graph()
        self.values = [self.graph.placeholder(name) for name in "ab"]
        for node in self.values:
            node.meta["val"] = torch.empty(SHAPE, device="meta")

    def call(self, target: torch._ops.OpOverload, *args: object) -> Node:
        value = target(*[a.meta["val"] if isinstance(a, Node) else a for a in args])
        node = self.graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = value
        return node

    def like(self, value: Node) -> list[Node]:
        shape = value.meta["val"].shape
        return [each for each in self.values if each.meta["val"].shape == shape]

    def step(self) -> None:
        draw, values = self._draw, self.values
        value = draw(st.one_of(st.sampled_from(values[-4:]), st.sampled_from(values)))
        kind = draw(st.sampled_from(["view", "view", "write", "write", "part", "pure", "swap"]))
        if kind == "view":
            target, arguments = draw(st.sampled_from(VIEWS))
            try:
                values.append(self.call(target, value, *arguments))
            except (RuntimeError, IndexError):
                values.append(self.call(aten.clone.default, value))
        elif kind == "write":
            target = draw(st.sampled_from([aten.add_.Tensor, aten.mul_.Tensor]))
            other = draw(st.one_of(st.just(2.5), st.sampled_from(self.like(value))))
            # Python's operators and torch refuse overlapping memory; a copy is always right.
            if isinstance(other, Node):
                other = self.call(aten.clone.default, other)
            self.call(target, value, other)
        elif kind == "part":
            part = (
                self.call(aten.slice.Tensor, value, 0, 0, 2) if value.meta["val"].dim() else value
            )
            self.call(aten.fill_.Scalar, part, 3.5)
        elif kind == "swap":
            other = draw(st.sampled_from(self.like(value)))
            values.append(self.call(self._swap, value, self.call(aten.clone.default, other)))
        else:
            values.append(
                self.call(draw(st.sampled_from([aten.neg.default, aten.clone.default])), value)
            )

    def finish(self) -> GraphModule:
        outputs = self._draw(st.lists(st.sampled_from(self.values), min_size=1, max_size=4))
        self.graph.output(tuple(outputs))
        return GraphModule(torch.nn.Module(), self.graph)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_random_program_there_and_back_means_the_same(
    swap: torch._ops.OpOverload, data: st.DataObject
) -> None:
    program = Program(data, swap)
    for _ in range(data.draw(st.integers(2, 10))):
        program.step()
    module = program.finish()
    note(str(module.graph))
    expected_inputs = random_tensors(SHAPE, SHAPE, dtype=torch.float32, device="cpu")
    inputs = [each.clone() for each in expected_inputs]
    addresses = [each.data_ptr() for each in inputs]
    backend = FunctionalBackend(fx_passes.default_npu_pipeline())

    with torch.no_grad():
        expected = module(*expected_inputs)
        for node in module.graph.nodes:
            node.meta.clear()
        actual = backend(module, inputs)(*inputs)

    note(str(backend.results[0].report))
    assert_same_values((tuple(actual), inputs), (tuple(expected), expected_inputs))  # type: ignore[arg-type]
    assert [each.data_ptr() for each in inputs] == addresses
