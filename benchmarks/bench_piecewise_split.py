"""Splitting and dispatch of piecewise-split against torch's splitters and hand-written code.

Run as ``./nox -s bench -- piecewise-split`` (options ``--layers=8,64``, ``--repeats=5``). A table
goes to the screen, rows ``{case, layers, subject, seconds_median, ratio_to_floor}`` to
``build/bench/piecewise-split.json``.

Cases:

* ``split``: a decoder of equal layers (45 nodes each, and 16 weights as graph inputs; one mutating
  attention operator with its layer's name) to graphs that can be handed to a compiler. The floor
  is a hand-written single pass that knows the one operator it looks for and checks nothing.
* ``split-different``: as ``split`` with another literal in every layer: no piece equals another.
* ``split-code``: as ``split``, and Python code generated for every piece.
* ``dispatch-1``, ``dispatch-17``: calling pieces that do nothing, with 1 and 17 arguments. The
  floor is a written-out function that calls them. Seconds are for one call of the whole.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes import split_module as torch_split

import piecewise_split as ps

ROWS_FILE = Path(__file__).resolve().parent.parent / "build" / "bench" / "piecewise-split.json"
HIDDEN, TOKENS = 64, 16
Row: TypeAlias = dict[str, str | int | float]
Subjects: TypeAlias = dict[str, Callable[[], object]]


def define_operators() -> torch.library.Library:
    """Define the attention operator of the decoder; the library object keeps it alive."""
    library = torch.library.Library("split_bench", "DEF")  # type: ignore[no-untyped-call]
    schema = "attention(Tensor q, Tensor k, Tensor v, Tensor(a!) out, str layer) -> ()"
    library.define(schema)  # type: ignore[no-untyped-call]
    kernel = "CompositeExplicitAutograd"
    library.impl("attention", lambda *_: None, kernel)  # type: ignore[no-untyped-call]
    return library


class DecoderGraph:
    """Builds the graph of a decoder node by node, each with a fake tensor as its metadata."""

    def __init__(self, layers: int, *, equal: bool) -> None:
        self.graph = Graph()
        self.mode = FakeTensorMode()
        x = self.input("x", TOKENS, HIDDEN)
        for layer in range(layers):
            x = self.layer(x, layer, 1e-6 if equal else 1e-6 * (layer + 2))
        self.graph.output((x,))

    def input(self, name: str, *shape: int) -> Node:
        node = self.graph.placeholder(name)
        with self.mode:
            node.meta["example_value"] = torch.empty(*shape)
        return node

    def call(self, operator: Any, *args: Any) -> Node:
        node = self.graph.call_function(operator, args)
        values = torch.fx.node.map_arg(args, lambda n: n.meta["example_value"])
        with self.mode:
            node.meta["example_value"] = operator(*values)
        return node

    def norm(self, x: Node, weight: Node, eps: float) -> Node:
        aten = torch.ops.aten
        square = self.call(aten.mul.Tensor, x, x)
        mean = self.call(aten.mean.dim, square, [-1], True)
        root = self.call(aten.rsqrt.default, self.call(aten.add.Scalar, mean, eps))
        return self.call(aten.mul.Tensor, self.call(aten.mul.Tensor, x, root), weight)

    def linear(self, x: Node, weight: Node, bias: Node) -> Node:
        aten = torch.ops.aten
        return self.call(aten.add.Tensor, self.call(aten.mm.default, x, weight), bias)

    def weights(self, layer: int) -> list[Node]:
        norms = [self.input(f"l{layer}_norm{i}", HIDDEN) for i in range(4)]
        matrices = [self.input(f"l{layer}_w{i}", HIDDEN, HIDDEN) for i in range(6)]
        biases = [self.input(f"l{layer}_b{i}", HIDDEN) for i in range(6)]
        return [*norms, *matrices, *biases]

    def layer(self, x: Node, layer: int, eps: float) -> Node:
        aten, w = torch.ops.aten, self.weights(layer)
        h = self.norm(x, w[0], eps)
        q, k, v = (self.linear(h, w[4 + i], w[10 + i]) for i in range(3))
        q, k = self.norm(q, w[1], eps), self.norm(k, w[2], eps)
        out = self.call(aten.empty_like.default, q)
        self.call(torch.ops.split_bench.attention.default, q, k, v, out, f"layers.{layer}")
        x = self.call(aten.add.Tensor, x, self.linear(out, w[7], w[13]))
        h = self.norm(x, w[3], eps)
        gate = self.call(aten.silu.default, self.linear(h, w[8], w[14]))
        up = self.call(aten.mul.Tensor, gate, h)
        for _ in range(3):
            up = self.call(aten.clamp.default, up, -10.0, 10.0)
        return self.call(aten.add.Tensor, x, self.linear(up, w[9], w[15]))


def decoder(layers: int, *, equal: bool) -> GraphModule:
    """Return the decoder; only its graph matters, it is never run."""
    return GraphModule(torch.nn.Module(), DecoderGraph(layers, equal=equal).graph)


def hand_assignment(graph: Graph) -> dict[Node, int]:
    """Number the pieces of a graph, knowing the one operator to look for."""
    attention = torch.ops.split_bench.attention.default
    owner: dict[Node, int] = {}
    index = 0
    for node in graph.nodes:
        if node.op == "call_function":
            if node.target is attention:
                owner[node] = index + 1
                index += 2
            else:
                owner[node] = index
    return owner


def hand_written(module: GraphModule) -> list[Graph]:
    """Split in one pass: a graph for each piece, without checks, names and shared pieces."""
    owner = hand_assignment(module.graph)
    count = max(owner.values()) + 1
    inputs: list[dict[Node, None]] = [{} for _ in range(count)]
    outputs: list[dict[Node, None]] = [{} for _ in range(count)]
    for node in module.graph.nodes:
        at = owner.get(node)
        for used in node.all_input_nodes:
            source = owner.get(used)
            if source != at:
                if at is not None:
                    inputs[at][used] = None
                if source is not None:
                    outputs[source][used] = None
    graphs = [Graph() for _ in range(count)]
    copies: list[dict[Node, Node]] = [{} for _ in range(count)]
    for graph, copied, taken in zip(graphs, copies, inputs, strict=True):
        for node in taken:
            copied[node] = graph.placeholder(node.name)
            copied[node].meta = node.meta.copy()
    for node, at in owner.items():
        copies[at][node] = graphs[at].node_copy(node, copies[at].__getitem__)
    for graph, copied, given in zip(graphs, copies, outputs, strict=True):
        graph.output(tuple(copied[node] for node in given))
    return graphs


def with_torch(module: GraphModule) -> GraphModule:
    owner = hand_assignment(module.graph)
    return torch_split.split_module(
        module, torch.nn.Module(), owner.__getitem__, keep_original_order=True
    )


def with_torch_simple(module: GraphModule) -> GraphModule:
    return torch_split.split_module_simple(module, hand_assignment(module.graph))


def ours(module: GraphModule) -> ps.SplitGraph:
    return ps.split(ps.plan_split(module, ["split_bench::attention"]))


def ours_by_stored_plan(module: GraphModule) -> Callable[[], object]:
    plan = ps.plan_split(module, ["split_bench::attention"])
    return lambda: ps.split(plan)


def code_of_ours(module: GraphModule) -> None:
    for piece in ours(module).pieces:
        _ = piece.graph_module


def code_of_hand_written(module: GraphModule) -> list[GraphModule]:
    return [GraphModule(torch.nn.Module(), graph) for graph in hand_written(module)]


def code_of_torch_simple(module: GraphModule) -> None:
    for child in with_torch_simple(module).children():
        assert isinstance(child, GraphModule)
        child.recompile()
        _ = child.code


def measure(subjects: Subjects, repeats: int, calls: int = 1) -> dict[str, float]:
    """Return the median seconds of one call of each subject; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for run in range(repeats + 1):
        for name, subject in subjects.items():
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            for _ in range(calls):
                subject()
            elapsed = (time.perf_counter() - start) / calls
            gc.enable()
            if run:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def rows_of(case: str, layers: int, seconds: dict[str, float], floor: str) -> list[Row]:
    return [
        {
            "case": case,
            "layers": layers,
            "subject": subject,
            "seconds_median": median,
            "ratio_to_floor": median / seconds[floor],
        }
        for subject, median in seconds.items()
    ]


def split_rows(layers: int, repeats: int) -> list[Row]:
    equal, different = decoder(layers, equal=True), decoder(layers, equal=False)
    floor = "hand-written single pass"
    subjects: Subjects = {
        floor: lambda: hand_written(equal),
        "plan_split + split": lambda: ours(equal),
        "split, plan given": ours_by_stored_plan(equal),
        "split_module_simple": lambda: with_torch_simple(equal),
        "split_module": lambda: with_torch(equal),
    }
    rows = rows_of("split", layers, measure(subjects, repeats), floor)
    subjects = {
        floor: lambda: hand_written(different),
        "plan_split + split": lambda: ours(different),
        "split_module_simple": lambda: with_torch_simple(different),
    }
    rows += rows_of("split-different", layers, measure(subjects, repeats), floor)
    floor = "hand-written single pass, GraphModule a piece"
    subjects = {
        floor: lambda: code_of_hand_written(equal),
        "plan_split + split, all graph_modules": lambda: code_of_ours(equal),
        "split_module_simple, recompiled": lambda: code_of_torch_simple(equal),
    }
    return rows + rows_of("split-code", layers, measure(subjects, repeats), floor)


def piece_of_one(x: object) -> tuple[object]:
    return (x,)


def piece_of_seventeen(
    x: object, _a: object, _b: object, _c: object, _d: object, _e: object, _f: object,
    _g: object, _h: object, _i: object, _j: object, _k: object, _l: object, _m: object,
    _n: object, _o: object, _p: object,
) -> tuple[object]:  # fmt: skip
    return (x,)


class ModulePiece(torch.nn.Module):
    """A piece as a module, as split_module leaves it."""

    def __init__(self, function: Callable[..., tuple[object]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        return self.function(*args)


class ObjectPiece:
    """A piece as a plain object with a call method, as engines put it in a module's dict."""

    def __init__(self, function: Callable[..., tuple[object]]) -> None:
        self.function = function

    def __call__(self, *args: object) -> object:
        return self.function(*args)


def chain(pieces: int, weights: int) -> GraphModule:
    """Return a graph whose every second node cuts it, each node with its own weights."""
    graph = Graph()
    x = graph.placeholder("x")
    operators = (torch.ops.aten.stack.default, torch.ops.aten.cat.default)
    own = [[graph.placeholder(f"w{n}_{i}") for i in range(weights)] for n in range(pieces)]
    for number in range(pieces):
        x = graph.call_function(operators[number % 2], ([x, *own[number]],))
    graph.output((x,))
    return GraphModule(torch.nn.Module(), graph)


def written_out(
    pieces: int, weights: int, function: Callable[..., object]
) -> Callable[..., object]:
    """Return the function that one would write by hand: only the calls, one after the other."""
    names = [[f"w{n}_{i}" for i in range(weights)] for n in range(pieces)]
    lines = [f"        x, = piece_{n}({', '.join(['x', *names[n]])})" for n in range(pieces)]
    parameters = ", ".join(["x", *[name for row in names for name in row]])
    bound = ", ".join(f"piece_{n}" for n in range(pieces))
    source = f"def bind({bound}):\n    def plain({parameters}):\n" + "\n".join(lines)
    namespace: dict[str, Any] = {}
    exec(source + "\n        return (x,)\n    return plain", namespace)
    plain: Callable[..., object] = namespace["bind"](*[function] * pieces)
    return plain


def dispatch_rows(pieces: int, arguments: int, repeats: int) -> list[Row]:
    function = piece_of_one if arguments == 1 else piece_of_seventeen
    module = chain(pieces, arguments - 1)
    plan = ps.plan_split(module, ["aten::cat"])
    stitched = ps.stitch(ps.split(plan), lambda _: function)
    owner = {node: at for at, node in enumerate(n for n in module.graph.nodes if n.args)}
    modules, objects = (
        torch_split.split_module(
            module, torch.nn.Module(), owner.__getitem__, keep_original_order=True,
            tuple_return=True,
        )
        for _ in range(2)
    )  # fmt: skip
    for name, _child in list(modules.named_children()):
        setattr(modules, name, ModulePiece(function))
    for name, _child in list(objects.named_children()):
        delattr(objects, name)
        objects.__dict__[name] = ObjectPiece(function)
    plain = written_out(pieces, arguments - 1, function)
    values = [object() for _ in plan.parameters]
    subjects: Subjects = {
        "plain function": lambda: plain(*values),
        "stitched": lambda: stitched(*values),
        "split GraphModule, plain objects": lambda: objects(*values),
        "split GraphModule, modules": lambda: modules(*values),
    }
    seconds = measure(subjects, 6 * repeats, calls=100)
    return rows_of(f"dispatch-{arguments}", pieces // 2, seconds, "plain function")


def show(rows: list[Row]) -> None:
    print(f"{'case':16} {'layers':>6}  {'subject':46} {'ms':>10} {'to floor':>9}")
    for row in rows:
        milliseconds = float(row["seconds_median"]) * 1e3
        print(
            f"{row['case']:16} {row['layers']:>6}  {row['subject']:46} {milliseconds:10.4f} "
            f"{row['ratio_to_floor']:9.2f}"
        )
        if str(row["case"]).startswith("dispatch"):
            pieces = 2 * int(row["layers"]) + 1
            print(f"{'':33}{milliseconds * 1e6 / pieces:10.0f} ns a piece")


def main() -> None:
    """Measure, print the table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default="8,32,64,128", help="numbers separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    library = define_operators()
    rows: list[Row] = []
    for arguments in (1, 17):
        rows += dispatch_rows(65, arguments, options.repeats)
    for layers in options.layers.split(","):
        rows += split_rows(int(layers), options.repeats)
    show(rows)
    ROWS_FILE.parent.mkdir(parents=True, exist_ok=True)
    ROWS_FILE.write_text(json.dumps(rows, indent=1))
    del library


if __name__ == "__main__":
    main()
