"""Random graphs with views, writes and several users, under random rules: values stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

import fx_passes
from fx_passes.testing import assert_same_values

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
SHAPE = (2, 4)

UNARY = [aten.neg.default, aten.abs.default, aten.sin.default, aten.clone.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.maximum.default]
VIEWS: list[tuple[torch._ops.OpOverload, tuple[object, ...]]] = [
    (aten.view.default, ([4, 2],)),
    (aten.t.default, ()),
    (aten.flip.default, ([0],)),
]
WRITES = [aten.neg_.default, aten.abs_.default]


def _abs_neg(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.abs(-x)}


def _neg_and_product(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    negated = -x
    return {"n": negated, "p": negated * y}


def _two_products(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Tensor]:
    total = x + y
    return {"s": total, "a": total * z, "b": torch.ops.aten.maximum(total, z)}


def _clone(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.clone(x)}


def _to_abs(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.bound["x"])}


def _negate_late(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    x, y = match.bound["x"], match.bound["y"]
    made: dict[str, Node] = {}
    if "n" in match.needed:
        made["n"] = build.call("aten::mul.Scalar", x, -1)
    if "p" in match.needed:
        made["p"] = build.call("aten::neg", build.call("aten::mul.Tensor", x, y))
    return made


def _turn_round(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    x, y, z = (match.bound[name] for name in "xyz")
    total = build.call("aten::add.Tensor", y, x)
    product = build.call("aten::mul.Tensor", z, total)
    largest = build.call("aten::maximum", z, total)
    made = {"s": total, "a": product, "b": largest}
    return {name: made[name] for name in match.needed}


def _its_input(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    del build
    x = match.bound["x"]
    assert isinstance(x, Node)
    return {"y": x}


RULES = [
    fx_passes.Rule(name="abs_neg", patterns=(_abs_neg,), rewrite=_to_abs),
    fx_passes.Rule(name="neg_product", patterns=(_neg_and_product,), rewrite=_negate_late),
    fx_passes.Rule(name="products", patterns=(_two_products,), rewrite=_turn_round),
    fx_passes.Rule(name="clone", patterns=(_clone,), rewrite=_its_input, shares_memory=True),
]


@st.composite
def graphs(draw: st.DrawFn) -> GraphModule:
    """Draw a graph over tensors of one number of elements; views are brought back to the shape."""
    graph = Graph()
    values = [graph.placeholder(name) for name in "abc"]
    for node in values:
        node.meta["val"] = torch.empty(SHAPE, device="meta")

    def call(target: Callable[..., object], *args: object) -> Node:
        node = graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = target(*[a.meta["val"] if isinstance(a, Node) else a for a in args])
        return node

    for _ in range(draw(st.integers(3, 16))):
        # Recent values are drawn more often, so that chains and writes between them are.
        value = draw(st.one_of(st.sampled_from(values[-3:]), st.sampled_from(values)))
        kind = draw(st.sampled_from(["unary", "binary", "negated", "view", "write"]))
        if kind == "negated":
            values.append(call(aten.neg.default, value))
            if draw(st.booleans()):
                call(draw(st.sampled_from(WRITES)), draw(st.sampled_from([value, values[-1]])))
            other = draw(st.sampled_from(values))
            target = draw(st.sampled_from([aten.mul.Tensor, aten.abs.default]))
            arguments = (values[-1], other) if target is aten.mul.Tensor else (values[-1],)
            values.append(call(target, *arguments))
        elif kind == "unary":
            values.append(call(draw(st.sampled_from(UNARY)), value))
        elif kind == "binary":
            other = draw(st.sampled_from(values))
            values.append(call(draw(st.sampled_from(BINARY)), value, other))
        elif kind == "view":
            target, arguments = draw(st.sampled_from(VIEWS))
            values.append(call(aten.reshape.default, call(target, value, *arguments), [2, 4]))
        else:
            call(draw(st.sampled_from(WRITES)), value)
    graph.output(tuple(draw(st.lists(st.sampled_from(values[3:] or values), min_size=1))))
    return GraphModule(torch.nn.Module(), graph)


def _run(module: GraphModule) -> tuple[object, list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(SHAPE, generator=generator) for _ in range(3)]
    return module(*inputs), inputs


@settings(
    max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(graphs(), st.permutations(RULES))
def test_rewriting_random_graphs_keeps_values_and_side_effects(
    module: GraphModule, rules: list[fx_passes.Rule]
) -> None:
    note(module.code)
    expected = _run(module)

    first_rule = tuple(rules[:2])
    fx_passes.normalize_graph(module)
    fx_passes.apply_rules(module.graph, first_rule)
    module.recompile()

    module.graph.lint()
    assert_same_values(_run(module), expected)
