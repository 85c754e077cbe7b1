"""Commutative operators match in every order of their operands, and a check may refuse one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node


def _product(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"out": torch.ops.aten.exp(torch.ops.aten.mul(x, y))}


def _first_is_a_row(match: fx_passes.Match) -> fx_passes.NoMatch | None:
    return None if match.tensor("x").dim() == 1 else fx_passes.NoMatch("`x` is no row")


def _difference(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    value = match.value("out")
    return {"out": build.call("aten::sub.Tensor", match.bound["x"], match.bound["y"], val=value)}


def run(
    function: Callable[..., object],
    rule: fx_passes.Rule,
    *shapes: tuple[int, ...],
) -> tuple[torch.fx.GraphModule, fx_passes.Report]:
    module = capture_graph(function, random_tensors(*shapes, device="cpu"))
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    result = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)).run(module)
    return module, result.report


@pytest.mark.parametrize("turned", [False, True])
def test_check_that_refuses_one_order_gets_the_other(turned: bool) -> None:
    def function(matrix: Tensor, row: Tensor) -> Tensor:
        return (row * matrix if turned else matrix * row).exp()

    rule = fx_passes.Rule(
        name="product", patterns=(_product,), check=_first_is_a_row, rewrite=_difference
    )
    module, report = run(function, rule, (2, 3), (3,))

    assert report.match_counts() == {"product": 1}
    (made,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor)
    assert [each.meta["val"].dim() for each in made.args] == [1, 2]


def test_check_that_refuses_all_orders_sees_each_once_and_its_first_reason_is_reported() -> None:
    seen: list[tuple[object, object]] = []

    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        seen.append((match.bound["x"], match.bound["y"]))
        return fx_passes.NoMatch(f"refusal {len(seen)}")

    rule = fx_passes.Rule(name="product", patterns=(_product,), check=check, rewrite=_difference)
    _, report = run(lambda a, b: (a * b).exp(), rule, (3,), (3,))

    assert len(seen) == len(set(seen)) == 2
    assert [miss.reason for miss in report.near_misses("product")] == ["refusal 1"]


def test_square_has_one_order() -> None:
    seen: list[fx_passes.Match] = []

    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        seen.append(match)
        return fx_passes.NoMatch("no")

    rule = fx_passes.Rule(name="product", patterns=(_product,), check=check, rewrite=_difference)
    run(lambda a: (a * a).exp(), rule, (3,))

    assert len(seen) == 1


def _sums(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> dict[str, Tensor]:
    """Six sums; the last one adds the first operand of the first one."""
    add = torch.ops.aten.add.Tensor
    return {"out": torch.ops.aten.exp(add(add(add(add(add(add(a, b), c), d), e), f), a))}


def _only(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"out": build.call("aten::neg", match.bound["a"], val=match.value("out"))}


@pytest.mark.parametrize("order", range(64))
def test_every_order_of_six_sums_matches(order: int) -> None:
    def add(position: int, left: Tensor, right: Tensor) -> Tensor:
        return right + left if order >> position & 1 else left + right

    def function(*given: Tensor) -> Tensor:
        total = given[0]
        for position, other in enumerate((*given[1:], given[0])):
            total = add(position, total, other)
        return total.exp()

    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    proxies = []
    for name in "abcdef":
        node = graph.placeholder(name)
        proxies.append(torch.fx.Proxy(node, tracer))
    graph.output(function(*proxies).node)  # type: ignore[arg-type,attr-defined]  # proxies
    for node in graph.nodes:
        if node.op != "output":
            node.meta["val"] = torch.empty(3, device="meta")
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    rule = fx_passes.Rule(name="sums", patterns=(_sums,), rewrite=_only)
    rules = fx_passes.RulePass(name="rules", rules=(rule,))

    fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)).run(module)

    (made,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    assert made.args[0].target == "a"


def _nested(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Tensor]:
    """The order of the inner operands decides whether the outer ones fit."""
    mul = torch.ops.aten.mul.Tensor
    return {"out": mul(mul(x, y), torch.ops.aten.exp(mul(x, z)))}


def test_inner_order_is_tried_again_when_an_outer_operand_does_not_fit() -> None:
    rule = fx_passes.Rule(
        name="nested",
        patterns=(_nested,),
        rewrite=lambda match, build: {
            "out": build.call("aten::neg", match.bound["x"], val=match.value("out"))
        },
    )
    for function in (
        lambda a, b, c: (a * b) * (b * c).exp(),
        lambda a, b, c: (c * b).exp() * (a * b),
        lambda a, b, c: (b * a) * (c * b).exp(),
    ):
        module, report = run(function, rule, (3,), (3,), (3,))
        assert report.match_counts() == {"nested": 1}
        (made,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
        assert "b" in str(made.args[0])
