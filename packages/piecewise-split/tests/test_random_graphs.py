"""Random graphs: against the unsplit graph, torch's splitter and the engines' numbering rule."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import hypothesis
import torch
from hypothesis import strategies
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.split_module import split_module

from piecewise_split import SplitPlan, plan_split, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable

ps_test = torch.ops.ps_test
CUTS = ["ps_test::attention", "ps_test::mix", "ps_test::pair"]
STEPS = (
    "add",
    "sin",
    "add_",
    "transpose",
    "alias",
    "chunk",
    "empty",
    "attention",
    "mix",
    "pair",
    "view",
    "constant",
)
programs = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(STEPS), strategies.integers(0, 99), strategies.integers(0, 99)
    ),
    min_size=1,
    max_size=16,
)


class Program:
    """Builds a graph on 4x4 matrices, one step after the other."""

    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        self.graph = Graph()
        self.values = [self.graph.placeholder("x"), self.graph.placeholder("y")]
        self.pairs: list[Node] = []
        for name, first, second in steps:
            a = self.values[first % len(self.values)]
            b = self.values[second % len(self.values)]
            getattr(self, f"step_{name}")(a, b)
        used = [value for at, value in enumerate(self.values) if at % 3 != 2]
        self.graph.output((used, {"x": self.values[0]}))
        self.module = GraphModule({"weight": torch.full((4, 4), 0.5)}, self.graph)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        FakeTensorProp(self.module, mode).propagate(*arguments())

    def call(self, target: Callable[..., object], *args: object) -> Node:
        return self.graph.call_function(target, args)  # type: ignore[arg-type]

    def step_add(self, a: Node, b: Node) -> None:
        self.values.append(self.call(torch.add, a, b))

    def step_sin(self, a: Node, b: Node) -> None:
        self.values.append(self.call(torch.ops.aten.sin.default, b))

    def step_add_(self, a: Node, b: Node) -> None:
        self.graph.call_method("add_", (a, self.graph.call_method("clone", (b,))))

    def step_transpose(self, a: Node, b: Node) -> None:
        self.values.append(self.graph.call_method("t", (a,)))

    def step_alias(self, a: Node, b: Node) -> None:
        self.values.append(self.call(operator.getitem, a, slice(None, None, None)))

    def step_chunk(self, a: Node, b: Node) -> None:
        both = self.call(torch.ops.aten.split.Tensor, self.call(torch.cat, [a, b]), 4)
        left = self.call(operator.getitem, both, 0)
        self.step_mix(a, b)
        self.values += [left, self.call(operator.getitem, both, 1)]

    def step_empty(self, a: Node, b: Node) -> None:
        self.values.append(self.call(torch.empty_like, a))
        self.call(ps_test.attention, b, self.values[-1], "filled")

    def step_attention(self, a: Node, b: Node) -> None:
        out = self.graph.call_method("clone", (b,))
        self.call(ps_test.attention, a, out, "a")
        self.values.append(out)

    def step_mix(self, a: Node, b: Node) -> None:
        self.values.append(self.call(ps_test.mix.default, a))

    def step_pair(self, a: Node, b: Node) -> None:
        pair = self.call(ps_test.pair, a)
        self.values += [self.call(operator.getitem, pair, at) for at in (0, 1)]

    def step_view(self, a: Node, b: Node) -> None:
        flat = self.call(torch.flatten, a)
        self.step_mix(a, b)
        self.values.append(self.graph.call_method("view", (flat,), {"size": self.size(b)}))

    def size(self, value: Node) -> Node:
        return self.graph.call_method("size", (value,))

    def step_constant(self, a: Node, b: Node) -> None:
        self.values.append(self.call(torch.mul, a, self.graph.get_attr("weight")))


def arguments() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 4, dtype=torch.float64, generator=generator) for _ in range(2)]


def run(function: Callable[..., object]) -> tuple[object, list[torch.Tensor]]:
    inputs = arguments()
    return function(*inputs), inputs


def engine_rule(module: GraphModule) -> list[set[str]]:
    """Number the pieces as serving engines do; see the README for the rule's source."""
    number = 0
    numbers: dict[Node, int] = {}
    last_cuts = previous_cuts = False
    for node in module.graph.nodes:
        if node.op in {"placeholder", "output", "get_attr"} or node.target == "size":
            continue
        producer = node.args[0] if node.target is operator.getitem else None
        if isinstance(producer, Node) and isinstance(producer.meta["val"], (tuple, list)):
            numbers[node] = numbers[producer]
            previous_cuts = False
            continue
        cuts = str(node.target).startswith("ps_test.")
        if (cuts and not previous_cuts) or (last_cuts and not cuts):
            number += 1
        numbers[node] = number
        last_cuts = previous_cuts = cuts
    found: dict[int, set[str]] = {}
    for node, at in numbers.items():
        found.setdefault(at, set()).add(node.name)
    return [found[at] for at in sorted(found)]


def pieces_of(plan: SplitPlan) -> list[set[str]]:
    return [set(piece.nodes) for piece in plan.pieces]


def reference_split(graph_module: torch.fx.GraphModule, plan: SplitPlan) -> torch.fx.GraphModule:
    """Split a graph as planned by torch's own splitter: slow and independent."""
    piece_of = {name: piece.index for piece in plan.pieces for name in piece.nodes}
    place: dict[torch.fx.Node, int] = {}
    for node in graph_module.graph.nodes:
        sources = [place[used] for used in node.all_input_nodes if used in place]
        place[node] = piece_of.get(node.name, max(sources, default=0))
    for node in reversed(graph_module.graph.nodes):
        if node.op == "get_attr":
            place[node] = min((place[user] for user in node.users), default=0)
    return split_module(
        graph_module, torch.nn.Module(), place.__getitem__, keep_original_order=True
    )


@hypothesis.settings(max_examples=60)
@hypothesis.given(programs)
def test_split_random_graph_equal_to_unsplit_and_reference(
    steps: list[tuple[str, int, int]],
) -> None:
    module = Program(steps).module
    plan = plan_split(module, CUTS, allow_absent=True)

    expected = run(module)
    stitched = run(stitch(split(plan)))
    reference = run(reference_split(module, plan))

    torch.testing.assert_close(stitched, expected, rtol=0, atol=0)
    torch.testing.assert_close(reference, expected, rtol=0, atol=0)


@hypothesis.settings(max_examples=60)
@hypothesis.given(programs)
def test_plan_random_graph_same_pieces_as_engine_rule(
    steps: list[tuple[str, int, int]],
) -> None:
    module = Program([step for step in steps if step[0] != "empty"]).module

    assert pieces_of(plan_split(module, CUTS, allow_absent=True)) == engine_rule(module)


@hypothesis.settings(max_examples=40)
@hypothesis.given(programs)
def test_plan_random_graph_round_trip_and_order(steps: list[tuple[str, int, int]]) -> None:
    module = Program(steps).module
    plan = plan_split(module, CUTS, allow_absent=True)
    order = {node.name: at for at, node in enumerate(module.graph.nodes)}

    assert SplitPlan.from_json(plan.to_json()) == plan
    cuts = [n for piece in plan.pieces if piece.is_splitting for n in piece.nodes]
    writes = [n for piece in plan.pieces for n in piece.nodes if n.startswith(("add_", "att"))]
    for names in (cuts, writes):
        kept = [order[name] for name in names if not name.startswith("getitem")]
        assert kept == sorted(kept)


@hypothesis.settings(max_examples=60)
@hypothesis.given(programs)
def test_plan_random_graph_live_is_what_is_made_before_and_used_later(
    steps: list[tuple[str, int, int]],
) -> None:
    module = Program(steps).module
    plan = plan_split(module, CUTS, allow_absent=True)
    returned = {node.name for node in module.graph.output_node().all_input_nodes}

    for at, piece in enumerate(plan.pieces):
        made = {name for each in plan.pieces[:at] for name in each.outputs}
        used = {name for each in plan.pieces[at:] for name in each.inputs} | returned
        assert set(piece.live) == made & used
        tensors = [node for node in module.graph.nodes if node.name in piece.live]
        assert piece.live_bytes == sum(node.meta["val"].nbytes for node in tensors)
