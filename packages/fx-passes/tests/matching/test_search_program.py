"""A search finds exactly the matches of a pattern."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, Node

import fx_passes
from fx_passes.graph_argument import literals_equal
from fx_passes.matching.matcher import Matcher
from fx_passes.matching.pattern import PatternCall, PatternNode, compile_pattern
from fx_passes.normal_form.operator_signature import SignatureTable
from matching.random_graphs import random_graph, random_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from torch import Tensor

    from fx_passes.matching.pattern import CompiledPattern

EVERYTHING = 1_000_000


def assignments(pattern: CompiledPattern, graph: Graph) -> Iterator[dict[int, object]]:
    """Yield all candidate matches of a pattern: every choice of nodes and operand orders."""
    calls = pattern.calls
    choices = [
        [node for node in graph.nodes if node.op == "call_function" and node.target in c.operators]
        for c in calls
    ]
    for nodes in product(*choices):
        chosen: dict[int, object] = {c.index: node for c, node in zip(calls, nodes, strict=True)}
        twins = pattern.twins.items()
        if any(chosen[each] is chosen[other] for each, others in twins for other in others):
            continue
        for turned in product(*[(False, True) if call.commutative else (False,) for call in calls]):
            found = dict(chosen)
            if all(
                fits(call, chosen[call.index], found, turned=turn)
                for call, turn in zip(calls, turned, strict=True)
            ):
                yield found


def fits(call: PatternCall, node: object, found: dict[int, object], *, turned: bool) -> bool:
    assert isinstance(node, Node)
    arguments: Sequence[object] | None = SignatureTable().arguments(node)
    assert arguments is not None
    if turned:
        arguments = (arguments[1], arguments[0], *arguments[2:])
    for want, have in zip(call.arguments, arguments, strict=True):
        if not isinstance(want, PatternNode):
            if not literals_equal(want, have):
                return False
        elif not isinstance(have, Node) or found.setdefault(want.index, have) is not have:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_pattern_is_found_at_any_position(random: Random) -> None:
    module = random_graph(random, steps=random.randint(3, 8))
    fx_passes.normalize_graph(module)
    pattern = random_rule(random, "rule").compiled[0]
    matcher = Matcher(pattern, module.graph, SignatureTable())
    solutions: list[tuple[object, ...]] = []
    for anchor in matcher.candidates():
        assert matcher._search is not None
        before = len(solutions)
        matcher._search(anchor, SignatureTable().arguments, solutions, EVERYTHING)
        first = matcher.match(anchor)
        assert isinstance(first, fx_passes.Match) == (len(solutions) > before)

    expected = {
        tuple(found[index] for index in range(len(pattern.nodes)))
        for found in assignments(pattern, module.graph)
    }
    assert set(solutions) == expected


@pytest.mark.parametrize("length", [3, 20, 45])
def test_pattern_of_many_sums_is_found_to_its_end_or_missed_at_its_end(length: int) -> None:
    add = torch.ops.aten.add.Tensor

    def chain(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        total = x
        for _ in range(length):
            total = add(torch.ops.aten.neg(total), y)
        return {"out": torch.ops.aten.exp(total)}

    pattern = compile_pattern(chain)
    for sums in (length, length - 1):
        graph = Graph()
        first, second = graph.placeholder("first"), graph.placeholder("second")
        total = first
        for position in range(sums):
            negative = graph.call_function(torch.ops.aten.neg.default, (total,))
            operands = (second, negative) if position % 3 == 0 else (negative, second)
            total = graph.call_function(add, operands)
        anchor = graph.call_function(torch.ops.aten.exp.default, (total,))
        graph.output(anchor)
        GraphModule(torch.nn.Module(), graph)
        for node in graph.nodes:
            node.meta["val"] = torch.empty(2, device="meta")

        found = Matcher(pattern, graph, SignatureTable()).match(anchor)

        if sums == length:
            assert isinstance(found, fx_passes.Match)
            assert found.bound == {"x": first, "y": second}
            assert len(found.nodes) == 2 * length + 1
        else:
            assert found is not None
            assert not isinstance(found, fx_passes.Match)
            assert found.depth == 2 * sums + 1
            assert found.reason == "expected a call of aten.add.Tensor, found `first`"


class CountedMeta(dict[str, object]):
    """Metadata of a node that counts how often a value is read from it."""

    asked = 0

    def get(self, key: str, default: object = None) -> object:
        self.asked += key == "val"
        return super().get(key, default)


@pytest.mark.parametrize("is_left", [True, False])
def test_operands_that_have_no_part_in_a_failure_are_not_exchanged(is_left: bool) -> None:
    aten = torch.ops.aten

    def pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        total = aten.exp(aten.add.Tensor(x, y))
        return {"out": aten.sub.Tensor(total, total)}

    graph = Graph()
    first, second = graph.placeholder("first"), graph.placeholder("second")
    summed = graph.call_function(aten.add.Tensor, (first, second))
    total = graph.call_function(aten.exp.default, (summed,))
    anchor = graph.call_function(aten.sub.Tensor, (total, total if is_left else first))
    graph.output(anchor)
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, device="meta")
    counted = first.meta = CountedMeta(first.meta)

    found = Matcher(compile_pattern(pattern), graph, SignatureTable()).match(anchor)

    assert isinstance(found, fx_passes.Match) == is_left
    assert counted.asked == 1
