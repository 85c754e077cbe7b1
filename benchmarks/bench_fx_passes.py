"""What it costs to find and rewrite operators: fx_passes against its peers, in one run.

Run by `nox -s bench -- fx-passes`. Options (as `--name=value`): `--layers=8,16,32` (add 512 for the
long one), `--peer-layers=64` (peers that are quadratic or re-trace every match are left out above).
Seconds are those of the processor, so that other load does not count.
Prints a table and writes rows `{case, layers, subject, seconds_median, ratio_to_floor}` to
build/bench/fx-passes.json. The floor of a case is its hand-written pass; that of the whole pipeline
is the recompilation of the module.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import operator
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
import torch_npu  # noqa: E402, F401, TID251
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch._inductor import pattern_matcher  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx import Graph, GraphModule, Node, subgraph_rewriter  # noqa: E402

import fx_passes  # noqa: E402
from fx_passes.fusions import fuse_add_rms_norm  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, TOKENS = 5120, 64, 8, 128, 25600, 32
Q_SIZE, KV_SIZE = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    subject: str
    seconds_median: float
    ratio_to_floor: float | None


def define_attention() -> None:
    """Define an attention operator that writes, as engines have."""
    name = "fx_passes_benchmark::attention"
    schema = "(Tensor q, Tensor k, Tensor v, Tensor(a!) cache, Tensor(b!) out) -> ()"
    torch.library.define(name, schema)
    torch.library.impl(name, "Meta", lambda *_: None)


class DecoderGraph:
    """Builds the ATen-level graph of a Qwen3-32B-shaped decoder with `npu::` operators."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.graph = Graph()
        self._values: dict[tuple[str, int], object] = {}
        self._count = 0
        self._parameters: dict[str, Node] = {}

    def parameter(self, name: str, *shape: int) -> Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = self._value(
            (name.split("_", maxsplit=1)[0], -1), lambda: self._empty(shape)
        )
        self._parameters[name] = node
        return node

    def _empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        with self.mode:
            return torch.empty(shape, dtype=torch.bfloat16, device="npu")

    def _value(self, key: tuple[str, int], make: Callable[[], object]) -> object:
        # Layers are equal, so the fake values of the first serve all.
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]

    def call(self, target: Callable[..., object], *args: object) -> Node:
        node = self.graph.call_function(target, args)  # type: ignore[arg-type]
        self._count += 1

        def run() -> object:
            values = [each.meta["val"] if isinstance(each, Node) else each for each in args]
            with self.mode:
                return target(*values)

        node.meta["val"] = self._value((str(target), self._count), run)
        node.meta["stack_trace"] = "File model.py, line 1, in forward"
        return node

    def layer(self, number: int, hidden: Node, residual: Node) -> tuple[Node, Node]:
        self._count = 0
        weights = self._parameters
        aten, npu = torch.ops.aten, torch.ops.npu
        residual = self.call(aten.add.Tensor, hidden, residual)
        normed = self.call(npu.npu_rms_norm.default, residual, weights[f"norm_{number}"])
        hidden = self.call(operator.getitem, normed, 0)
        qkv = self.call(aten.linear.default, hidden, weights[f"qkv_{number}"])
        parts = self.call(aten.split_with_sizes.default, qkv, [Q_SIZE, KV_SIZE, KV_SIZE], -1)
        rotated = []
        for index, heads in enumerate((HEADS, KV_HEADS)):
            part = self.call(operator.getitem, parts, index)
            view = self.call(aten.view.default, part, [-1, heads, HEAD_DIM])
            norm = self.call(npu.npu_rms_norm.default, view, weights[f"head_{number}"])
            flat = self.call(operator.getitem, norm, 0)
            four = self.call(aten.unsqueeze.default, flat, 0)
            turned = self.call(npu.npu_rotary_mul.default, four, weights["cos"], weights["sin"])
            rotated.append(self.call(aten.squeeze.dim, turned, 0))
        v = self.call(operator.getitem, parts, 2)
        out = self.call(aten.empty_like.default, rotated[0])
        attention = torch.ops.fx_passes_benchmark.attention.default
        self.call(attention, *rotated, v, weights[f"cache_{number}"], out)
        flat = self.call(aten.view.default, out, [-1, Q_SIZE])
        hidden = self.call(aten.linear.default, flat, weights[f"o_{number}"])
        residual = self.call(aten.add.Tensor, hidden, residual)
        normed = self.call(npu.npu_rms_norm.default, residual, weights[f"norm_{number}"])
        hidden = self.call(operator.getitem, normed, 0)
        gate_up = self.call(aten.linear.default, hidden, weights[f"up_{number}"])
        halves = self.call(aten.split.Tensor, gate_up, INTERMEDIATE, -1)
        gate = self.call(operator.getitem, halves, 0)
        up = self.call(operator.getitem, halves, 1)
        activated = self.call(aten.silu.default, gate)
        product = self.call(aten.mul.Tensor, activated, up)
        hidden = self.call(aten.linear.default, product, weights[f"down_{number}"])
        return hidden, residual

    @classmethod
    def build(cls, layers: int) -> GraphModule:
        decoder = cls()
        hidden = decoder.parameter("hidden", TOKENS, HIDDEN)
        residual = decoder.parameter("residual", TOKENS, HIDDEN)
        for name in ("cos", "sin"):
            decoder.parameter(name, 1, TOKENS, 1, HEAD_DIM)
        for number in range(layers):
            decoder.parameter(f"norm_{number}", HIDDEN)
            decoder.parameter(f"head_{number}", HEAD_DIM)
            decoder.parameter(f"qkv_{number}", Q_SIZE + 2 * KV_SIZE, HIDDEN)
            decoder.parameter(f"o_{number}", HIDDEN, Q_SIZE)
            decoder.parameter(f"up_{number}", 2 * INTERMEDIATE, HIDDEN)
            decoder.parameter(f"down_{number}", HIDDEN, INTERMEDIATE)
            decoder.parameter(f"cache_{number}", 16, 128, KV_HEADS, HEAD_DIM)
        for number in range(layers):
            hidden, residual = decoder.layer(number, hidden, residual)
        decoder.graph.output((hidden, residual))
        return GraphModule(torch.nn.Module(), decoder.graph)


def hand_written(module: GraphModule) -> int:
    """Fuse add + RMSNorm as one would by hand, for this graph only; the lower bound."""
    graph, matched = module.graph, 0
    npu = torch.ops.npu
    target = npu.npu_rms_norm.default
    for norm in graph.find_nodes(op="call_function", target=target):
        total = norm.args[0]
        if total.target is not torch.ops.aten.add.Tensor or len(total.args) != 2 or total.kwargs:
            continue
        x, residual = total.args
        x_value, residual_value = x.meta["val"], residual.meta["val"]
        if x_value.shape != residual_value.shape or x_value.dtype != residual_value.dtype:
            continue
        (normed,) = norm.users
        users = [user for user in total.users if user is not norm]
        # The norm follows the addition, and nothing else of the layer stands between them.
        with graph.inserting_before(norm):
            arguments = (x, residual, *norm.args[1:])
            fused = graph.call_function(npu.npu_add_rms_norm.default, arguments)
            first = graph.call_function(operator.getitem, (fused, 0))
            third = graph.call_function(operator.getitem, (fused, 2))
        fused.meta = {**norm.meta, "val": (*norm.meta["val"], total.meta["val"])}
        first.meta, third.meta = dict(normed.meta), dict(total.meta)
        normed.replace_all_uses_with(first)
        if users:
            total.replace_all_uses_with(third, delete_user_cb=lambda user: user is not norm)  # noqa: B023
        for node in (normed, norm, total):
            graph.erase_node(node)
        matched += 1
    return matched


def search(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> object:
    total = torch.ops.aten.add.Tensor(x, residual)
    return torch.ops.npu.npu_rms_norm.default(total, weight)[0], total


def replacement(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> object:
    fused = torch.ops.npu.npu_add_rms_norm.default(x, residual, weight)
    return fused[0], fused[2]


def with_replace_pattern(module: GraphModule) -> int:
    """Fuse add + RMSNorm with torch.fx.subgraph_rewriter."""
    return len(subgraph_rewriter.replace_pattern(module, search, replacement))


def with_register_replacement(module: GraphModule) -> int:
    """Fuse add + RMSNorm with Inductor's pattern matcher; registering is part of it."""
    patterns = pattern_matcher.PatternMatcherPass()
    mode = next(iter(module.graph.nodes)).meta["val"].fake_mode
    with mode:
        hidden = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device="npu")
        other = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device="npu")
        weight = torch.empty(HIDDEN, dtype=torch.bfloat16, device="npu")
        pattern_matcher.register_replacement(
            search, replacement, [hidden, other, weight], pattern_matcher.fwd_only, patterns
        )
        return int(patterns.apply(module.graph))


def with_fx_passes(rule: fx_passes.Rule) -> Callable[[GraphModule], int]:
    """Fuse add + RMSNorm with one rule, which was traced before, once for all graphs."""
    assert rule.compiled

    def subject(module: GraphModule) -> int:
        (report,) = fx_passes.apply_rules(module.graph, (rule,))
        return len(report.matches)

    return subject


def _misses_near(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> dict[str, torch.Tensor]:
    norm = torch.ops.npu.npu_rms_norm(
        torch.ops.aten.relu(torch.ops.aten.mul(x, x)), weight, epsilon
    )
    return {"y": norm[0]}


def _misses_anchored(x: torch.Tensor, weight: torch.Tensor, eps: float) -> dict[str, torch.Tensor]:
    return {"y": torch.ops.npu.npu_rms_norm(torch.ops.aten.silu(x), weight, eps)[0]}


def missing_rules(pattern: Callable[..., dict[str, torch.Tensor]]) -> tuple[fx_passes.Rule, ...]:
    """Return 16 rules that match nowhere."""
    rule = fx_passes.Rule(name="0", patterns=(pattern,), rewrite=lambda *_: {})
    return tuple(replace(rule, name=str(number)) for number in range(16))


def check_by_hand(module: GraphModule) -> int:
    """Look 16 times at every RMSNorm and find that its input is no silu."""
    found = 0
    for _ in range(16):
        for silu in module.graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default):
            for user in silu.users:
                found += user.target is torch.ops.npu.npu_rms_norm.default
    return found


def measure(module: GraphModule, subject: Callable[[GraphModule], int]) -> float:
    """Return the processor seconds of one run of a subject on a fresh copy."""
    fresh = GraphModule(module, copy.deepcopy(module.graph))
    gc.collect()
    gc.disable()
    # Every subject is one thread that never waits; other load of the machine does not count.
    begun = time.thread_time()
    subject(fresh)
    seconds = time.thread_time() - begun
    gc.enable()
    return seconds


def measure_case(
    case: str,
    layers: int,
    module: GraphModule,
    subjects: dict[str, Callable[[GraphModule], int]],
    repeats: int,
) -> list[Row]:
    """Measure all subjects of a case, turn by turn; the first is the floor."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(repeats):
        for name, subject in subjects.items():
            slow = name in {"replace_pattern", "register_replacement"}
            if number == 0 or not slow or layers <= 16:
                seconds[name].append(measure(module, subject))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    floor = medians[next(iter(subjects))]
    return [
        Row(
            case=case,
            layers=layers,
            subject=name,
            seconds_median=median,
            ratio_to_floor=median / floor,
        )
        for name, median in medians.items()
    ]


def rows_of(layers: int, peer_layers: int, repeats: int) -> list[Row]:
    """Measure every case at one number of layers."""
    module = DecoderGraph.build(layers)
    expected = hand_written(GraphModule(module, copy.deepcopy(module.graph)))
    fuse = with_fx_passes(*fuse_add_rms_norm())
    found = fuse(GraphModule(module, copy.deepcopy(module.graph)))
    if found != expected or expected != 2 * layers:
        raise RuntimeError(
            f"{layers} layers: expected {2 * layers} matches, found {found}, {expected}"
        )
    fusing: dict[str, Callable[[GraphModule], int]] = {
        "hand-written": hand_written,
        "fx_passes": fuse,
    }
    if layers <= peer_layers:
        fusing["replace_pattern"] = with_replace_pattern
        fusing["register_replacement"] = with_register_replacement
    absent, present = missing_rules(_misses_near), missing_rules(_misses_anchored)
    for rule in (*absent, *present):
        assert rule.compiled
    pipeline = fx_passes.default_npu_pipeline()
    floor_of_pipeline: dict[str, Callable[[GraphModule], int]] = {
        "recompile": lambda fresh: len(fresh.recompile().__class__.__name__),
        "fx_passes": lambda fresh: len(pipeline.run(fresh).report.matches()),
    }
    missing: dict[str, Callable[[GraphModule], int]] = {
        "hand-written": check_by_hand,
        "fx_passes": lambda fresh: len(fx_passes.apply_rules(fresh.graph, present)),
    }
    nothing: dict[str, Callable[[GraphModule], int]] = {
        "fx_passes": lambda fresh: len(fx_passes.apply_rules(fresh.graph, absent)),
    }
    return [
        *measure_case("fuse add+norm at all sites", layers, module, fusing, repeats),
        *measure_case("16 rules, operators there, no match", layers, module, missing, repeats),
        *measure_case("16 rules, operators absent", layers, module, nothing, repeats),
        *measure_case("default pipeline", layers, module, floor_of_pipeline, repeats),
    ]


def print_table(rows: list[Row]) -> None:
    """Print the rows, one line for each case and subject, one column for each number of layers."""
    layers = sorted({row.layers for row in rows})
    table = Table(title="fx-passes, milliseconds (ratio to the floor)")
    table.add_column("case")
    table.add_column("subject")
    for each in layers:
        table.add_column(f"{each} layers", justify="right")
    cells = {(row.case, row.subject, row.layers): row for row in rows}
    for case, subject in dict.fromkeys((row.case, row.subject) for row in rows):
        line = []
        for each in layers:
            row = cells.get((case, subject, each))
            ratio = "" if row is None else f" ({row.ratio_to_floor:.1f}x)"
            line.append("-" if row is None else f"{row.seconds_median * 1e3:.2f}{ratio}")
        table.add_row(case, subject, *line)
    Console(width=160).print(table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="8,16,32,64,128")
    parser.add_argument("--peer-layers", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    define_attention()
    rows: list[Row] = []
    for layers in map(int, options.layers.split(",")):
        rows += rows_of(layers, options.peer_layers, options.repeats)
    print_table(rows)
    folder = Path(__file__).parent.parent / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=1)
    (folder / "fx-passes.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
