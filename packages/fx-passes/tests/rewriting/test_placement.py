"""Insertion points, on graphs written by hand: inputs before, users after, cycles refused."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

import fx_passes

aten = torch.ops.aten


def _pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    negated = torch.ops.aten.neg(x)
    return {"a": negated, "b": torch.ops.aten.maximum(negated, y)}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    negated = build.call("aten::neg", match.bound["x"])
    made = {"a": negated, "b": build.call("aten::minimum", negated, match.bound["y"])}
    return {name: made[name] for name in match.needed}


RULE = fx_passes.Rule(name="rule", patterns=(_pattern,), rewrite=_rewrite)


class Builder:
    """A graph on tensors [4]."""

    def __init__(self) -> None:
        self.graph = Graph()

    def placeholder(self, name: str) -> Node:
        return self._known(self.graph.placeholder(name))

    def call(self, target: torch._ops.OpOverload, *args: object) -> Node:
        return self._known(self.graph.call_function(target, args))  # type: ignore[arg-type]

    @staticmethod
    def _known(node: Node) -> Node:
        node.meta["val"] = torch.empty(4, device="meta")
        return node

    def apply(self, *outputs: Node) -> fx_passes.RuleReport:
        self.graph.output(outputs)
        module = GraphModule(torch.nn.Module(), self.graph)
        (report,) = fx_passes.apply_rules(module.graph, (RULE,))
        module.graph.lint()
        self.graph = module.graph
        return report

    def order(self) -> list[object]:
        return [node.target for node in self.graph.nodes if node.op == "call_function"]


def test_output_used_before_the_last_node_gets_its_value_in_time() -> None:
    build = Builder()
    x, y = build.placeholder("x"), build.placeholder("y")
    negated = build.call(aten.neg.default, x)
    early = build.call(aten.abs.default, negated)
    last = build.call(aten.maximum.default, negated, y)

    report = build.apply(early, last)

    assert len(report.matches) == 1
    assert build.order() == [aten.neg.default, aten.minimum.default, aten.abs.default]


def test_users_before_a_late_input_move_down_in_their_order() -> None:
    build = Builder()
    x, y = build.placeholder("x"), build.placeholder("y")
    negated = build.call(aten.neg.default, x)
    first = build.call(aten.abs.default, negated)
    second = build.call(aten.exp.default, first)
    late = build.call(aten.sin.default, y)
    last = build.call(aten.maximum.default, negated, late)

    report = build.apply(second, last)

    assert len(report.matches) == 1
    assert build.order() == [
        aten.sin.default,
        aten.neg.default,
        aten.minimum.default,
        aten.abs.default,
        aten.exp.default,
    ]


def test_late_input_made_from_an_output_is_refused() -> None:
    build = Builder()
    x = build.placeholder("x")
    negated = build.call(aten.neg.default, x)
    between = build.call(aten.abs.default, negated)
    late = build.call(aten.exp.default, between)
    last = build.call(aten.maximum.default, negated, late)

    report = build.apply(last)

    assert [miss.reason for miss in report.near_misses] == [
        "the input `exp_default` depends on an output of the match"
    ]


def test_users_do_not_move_past_a_write() -> None:
    build = Builder()
    x, y, z = (build.placeholder(name) for name in "xyz")
    negated = build.call(aten.neg.default, x)
    first = build.call(aten.abs.default, negated)
    build.call(aten.zero_.default, z)
    late = build.call(aten.sin.default, y)
    last = build.call(aten.maximum.default, negated, late)

    report = build.apply(first, last)

    (miss,) = report.near_misses
    assert "cannot move past `zero__default`" in miss.reason


def test_write_of_an_output_by_its_first_user_is_allowed_if_it_is_last() -> None:
    build = Builder()
    x, y = build.placeholder("x"), build.placeholder("y")
    negated = build.call(aten.neg.default, x)
    last = build.call(aten.maximum.default, negated, y)
    build.call(aten.zero_.default, negated)

    report = build.apply(negated, last)

    assert len(report.matches) == 1


def test_write_of_an_output_before_it_is_read_again_is_refused() -> None:
    build = Builder()
    x, y = build.placeholder("x"), build.placeholder("y")
    negated = build.call(aten.neg.default, x)
    build.call(aten.zero_.default, negated)
    last = build.call(aten.maximum.default, negated, y)

    report = build.apply(negated, last)

    (miss,) = report.near_misses
    assert "`zero__default` writes a value of the match" in miss.reason


def test_many_users_before_a_late_input_end_the_search() -> None:
    build = Builder()
    x, y = build.placeholder("x"), build.placeholder("y")
    negated = build.call(aten.neg.default, x)
    node = negated
    for _ in range(1100):
        node = build.call(aten.abs.default, node)
    late = build.call(aten.sin.default, y)
    last = build.call(aten.maximum.default, negated, late)

    report = build.apply(node, last)

    (miss,) = report.near_misses
    assert "too far before" in miss.reason


def test_value_inside_the_match_that_is_its_input_as_well_is_refused() -> None:
    build = Builder()
    x = build.placeholder("x")
    negated = build.call(aten.neg.default, x)
    last = build.call(aten.maximum.default, negated, negated)

    report = build.apply(last)

    assert [miss.reason for miss in report.near_misses] == [
        "`neg_default` is both an input of the match and inside it"
    ]
