"""What it costs to find and rewrite operators: fx_passes against its peers, in one run.

Run by `nox -s bench -- fx-passes`. Options (as `--name=value`): `--layers=8,16,32` (add 512 for the
long one), `--peer-layers=64` (peers that are quadratic or re-trace every match are left out above).
Seconds are those of the processor, so that other load does not count, and the least of some rounds,
as what else runs there only ever adds. A hand-written pass knows one graph: it keeps metadata and
stack traces, and looks for no writes, streams, uses elsewhere or costs, which a rule has to. What
these promises cost by hand is measured once, as `hand-written, as careful`.

A rule takes more than twice its hand-written pass where the graph itself has little to do: `silu *
up` makes one node and takes five away. By profile (64 layers, processor time), that is a third of
the rule's time, as long as the whole pass by hand; the rest is placement 10 %, the rule's check
10 %, search and match 9 %, cost 7 %, effects and aliases of the graph once 5 %, arguments in normal
form 5 %, checks of what was built 3 %, and literals, users, metadata and records. No function
stands out, and each answers a question that a match must not leave open. Normalisation with
quantisation takes 2.2 to 2.5 times as long: 26 % of that makes the new nodes, 17 % is the check,
placement 10 %, replacing and erasing 10 %, search and match 9 %, metadata and fake values of what
is new 8 %, cost 4 %, literals 4 %, checks of what was built 2 %. Normalisation alone takes 1.8
times as long, and 2.2 at 8 layers, where few sites share what a rule and a graph cost once. For the
same reason a miss that is deep costs 9.8 microseconds an anchor there, where 7.5 do at 64 layers;
at 512, whose nodes no longer lie in a cache, it is 8.4.
Prints a table and writes rows `{case, layers, sites, subject, seconds, ratio_to_floor}` to
build/bench/fx-passes.json; a site is a place where a rule matches, or is tried. The floor of a case
is its hand-written pass; that of the whole pipeline is the recompilation of the module; that of
graphs that write memory is the pipeline without a look at what they write.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import operator
import time
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from fx_passes.functional import FunctionalBackend  # noqa: E402
from fx_passes.fusions import (  # noqa: E402
    fuse_add_rms_norm,
    fuse_add_rms_norm_quant,
    fuse_swiglu,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch._ops import OpOverload

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, TOKENS = 5120, 64, 8, 128, 25600, 32
Q_SIZE, KV_SIZE = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings: the size of the model, the largest size for some peers, and the rounds."""

    layers: int
    peer_layers: int
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    sites: int
    subject: str
    seconds: float
    ratio_to_floor: float


def define_attention() -> None:
    """Define an attention operator that writes, as engines have."""
    name = "fx_passes_benchmark::attention"
    schema = "(Tensor q, Tensor k, Tensor v, Tensor(a!) cache, Tensor(b!) out) -> ()"
    torch.library.define(name, schema)
    torch.library.impl(name, "Meta", lambda *_: None)


class DecoderGraph:
    """Builds the ATen-level graph of a Qwen3-32B-shaped decoder with `npu::` operators.

    Args:
        quantized: Whether inputs of linear layers after a norm are quantised to int8.
    """

    def __init__(self, *, quantized: bool) -> None:
        self.quantized = quantized
        self.mode = FakeTensorMode()
        self.graph = Graph()
        self._values: dict[tuple[str, int], object] = {}
        self._count = 0
        self._parameters: dict[str, Node] = {}

    def parameter(self, name: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Node:
        node = self.graph.placeholder(name)
        kind = name.rstrip("0123456789")
        node.meta["val"] = self._value((kind, -1), lambda: self._empty(shape, dtype))
        self._parameters[name] = node
        return node

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        with self.mode:
            return torch.empty(shape, dtype=dtype, device="npu")

    def _value(self, key: tuple[str, int], make: Callable[[], object]) -> object:
        # Layers are equal, so the fake values of the first apply to all.
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]

    def call(self, target: Callable[..., object], *args: object, **kwargs: object) -> Node:
        node = self.graph.call_function(target, args, kwargs)  # type: ignore[arg-type]
        self._count += 1

        def run() -> object:
            values = [each.meta["val"] if isinstance(each, Node) else each for each in args]
            with self.mode:
                return target(*values, **kwargs)

        node.meta["val"] = self._value((str(target), self._count), run)
        node.meta["stack_trace"] = "File model.py, line 1, in forward"
        return node

    def linear(self, hidden: Node, name: str, number: int) -> Node:
        """Call the linear layer after a norm, as engines write it for either kind of weights."""
        weight = self._parameters[f"{name}_{number}"]
        if not self.quantized:
            return self.call(torch.ops.aten.linear.default, hidden, weight)
        scale, factor = (self._parameters[each] for each in ("scale", f"factor_{name}"))
        arguments = (hidden, scale, None, torch.qint8, -1, True)
        rounded = self.call(torch.ops.npu.npu_quantize.default, *arguments)
        multiply = torch.ops.npu.npu_quant_matmul.default
        return self.call(multiply, rounded, weight, factor, output_dtype=torch.bfloat16)

    def layer(self, number: int, hidden: Node, residual: Node) -> tuple[Node, Node]:
        self._count = 0
        weights = self._parameters
        aten, npu = torch.ops.aten, torch.ops.npu
        residual = self.call(aten.add.Tensor, hidden, residual)
        normed = self.call(npu.npu_rms_norm.default, residual, weights[f"norm_{number}"])
        hidden = self.call(operator.getitem, normed, 0)
        qkv = self.linear(hidden, "qkv", number)
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
        gate_up = self.linear(hidden, "up", number)
        halves = self.call(aten.split.Tensor, gate_up, INTERMEDIATE, -1)
        gate = self.call(operator.getitem, halves, 0)
        up = self.call(operator.getitem, halves, 1)
        activated = self.call(aten.silu.default, gate)
        product = self.call(aten.mul.Tensor, activated, up)
        hidden = self.call(aten.linear.default, product, weights[f"down_{number}"])
        return hidden, residual

    @classmethod
    def build(cls, layers: int, *, quantized: bool = False) -> GraphModule:
        decoder = cls(quantized=quantized)
        hidden = decoder.parameter("hidden", TOKENS, HIDDEN)
        residual = decoder.parameter("residual", TOKENS, HIDDEN)
        for name in ("cos", "sin"):
            decoder.parameter(name, 1, TOKENS, 1, HEAD_DIM)
        qkv, up = (Q_SIZE + 2 * KV_SIZE, HIDDEN), (2 * INTERMEDIATE, HIDDEN)
        weights = torch.bfloat16
        if quantized:
            # int8 weights are stored the other way round, with a factor for each output.
            decoder.parameter("scale", HIDDEN)
            decoder.parameter("factor_qkv", qkv[0])
            decoder.parameter("factor_up", up[0])
            qkv, up, weights = qkv[::-1], up[::-1], torch.int8
        for number in range(layers):
            decoder.parameter(f"norm_{number}", HIDDEN)
            decoder.parameter(f"head_{number}", HEAD_DIM)
            decoder.parameter(f"qkv_{number}", *qkv, dtype=weights)
            decoder.parameter(f"o_{number}", HIDDEN, Q_SIZE)
            decoder.parameter(f"up_{number}", *up, dtype=weights)
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
        # The norm directly follows the addition.
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


def hand_written_quant(module: GraphModule) -> int:
    """Fuse add + RMSNorm + quantisation by hand, for this graph only."""
    graph, matched = module.graph, 0
    npu = torch.ops.npu
    for quantize in graph.find_nodes(op="call_function", target=npu.npu_quantize.default):
        normed, scale, offset = quantize.args[:3]
        if normed.target is not operator.getitem or len(normed.users) != 1:
            continue
        norm = normed.args[0]
        total = norm.args[0]
        if norm.target is not npu.npu_rms_norm.default or len(norm.users) != 1:
            continue
        if total.target is not torch.ops.aten.add.Tensor or len(total.args) != 2 or total.kwargs:
            continue
        x, residual = total.args
        x_value, residual_value = x.meta["val"], residual.meta["val"]
        if x_value.shape != residual_value.shape or x_value.dtype != residual_value.dtype:
            continue
        if scale.meta["val"].shape != norm.args[1].meta["val"].shape:
            continue
        users = [user for user in total.users if user is not norm]
        with graph.inserting_before(norm):
            arguments = (x, residual, norm.args[1], scale, offset)
            fused = graph.call_function(npu.npu_add_rms_norm_quant.default, arguments)
            first = graph.call_function(operator.getitem, (fused, 0))
            third = graph.call_function(operator.getitem, (fused, 2))
        rounded = quantize.meta["val"]
        fused.meta = {**quantize.meta, "val": (rounded, rounded, total.meta["val"])}
        first.meta, third.meta = dict(quantize.meta), dict(total.meta)
        quantize.replace_all_uses_with(first)
        if users:
            total.replace_all_uses_with(third, delete_user_cb=lambda user: user is not norm)  # noqa: B023
        for node in (quantize, normed, norm, total):
            graph.erase_node(node)
        matched += 1
    return matched


def hand_written_swiglu(module: GraphModule) -> int:
    """Fuse silu(gate) * up by hand, for this graph only."""
    graph, matched = module.graph, 0
    aten, npu = torch.ops.aten, torch.ops.npu
    for silu in graph.find_nodes(op="call_function", target=aten.silu.default):
        (gate,) = silu.args
        if gate.target is not operator.getitem or gate.args[1] != 0 or len(gate.users) != 1:
            continue
        halves = gate.args[0]
        if halves.target is not aten.split.Tensor or len(silu.users) != 1:
            continue
        x, size, dim = halves.args
        (product,) = silu.users
        x_value = x.meta["val"]
        if product.target is not aten.mul.Tensor or dim not in {-1, x_value.dim() - 1}:
            continue
        up = product.args[1]
        if up.target is not operator.getitem or up.args != (halves, 1) or len(up.users) != 1:
            continue
        if 2 * size != x_value.shape[-1] or x_value.dtype is not torch.bfloat16:
            continue
        with graph.inserting_before(product):
            fused = graph.call_function(npu.npu_swiglu.default, (x,))
        fused.meta = dict(product.meta)
        product.replace_all_uses_with(fused)
        for node in (product, silu, up, gate, halves):
            graph.erase_node(node)
        matched += 1
    return matched


def careful_swiglu(module: GraphModule) -> int:
    """Fuse silu(gate) * up by hand with the guarantees of a rule, for this spelling alone.

    In addition to `hand_written_swiglu` it checks: no keyword arguments, device, shapes, one
    stream, no
    write between the nodes, the product has its own memory, no more launches than before. It
    records
    the reason for each place that it leaves alone, and the names for each that it does not.
    """
    graph = module.graph
    aten, npu = torch.ops.aten, torch.ops.npu
    writers = [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and node.target._schema.is_mutable
    ]
    misses: list[tuple[str, str]] = []
    records: list[dict[str, object]] = []
    for silu in graph.find_nodes(op="call_function", target=aten.silu.default):
        found = careful_halves(silu, writers)
        if isinstance(found, str):
            misses.append((silu.name, found))
            continue
        halves, gate, up, product = found
        nodes = (halves, gate, up, silu, product)
        with graph.inserting_before(product):
            fused = graph.call_function(npu.npu_swiglu.default, (halves.args[0],))
        fused.meta = dict(product.meta)
        product.replace_all_uses_with(fused)
        names = [node.name for node in nodes]
        records.append({"anchor": silu.name, "removed": names, "created": [fused.name]})
        for node in (product, silu, up, gate, halves):
            graph.erase_node(node)
    return len(records)


def careful_halves(  # noqa: C901, PLR0911 - one line for each reason
    silu: Any, writers: list[Node]
) -> str | tuple[Node, Node, Node, Node]:
    """Return the split, both halves and the product around a silu, or why they are not fused."""
    aten = torch.ops.aten
    gate = silu.args[0]
    if silu.kwargs or gate.target is not operator.getitem or gate.args[1] != 0:
        return f"`{gate.name}` is no first half"
    halves = gate.args[0]
    if halves.target is not aten.split.Tensor or len(halves.args) != 3 or halves.kwargs:
        return f"`{halves.name}` is no split along a dimension"
    if len(gate.users) != 1 or len(silu.users) != 1 or len(halves.users) != 2:
        return f"`{gate.name}`, `{silu.name}` or `{halves.name}` is used elsewhere"
    (product,) = silu.users
    if product.target is not aten.mul.Tensor or product.kwargs:
        return f"`{product.name}` is no product"
    up = product.args[1] if product.args[0] is silu else product.args[0]
    if up.target is not operator.getitem or up.args != (halves, 1) or len(up.users) != 1:
        return f"`{up.name}` is no second half, or is used elsewhere"
    x, size, dim = halves.args
    value, result = x.meta["val"], product.meta["val"]
    if value.device.type != "npu" or value.dtype not in {torch.bfloat16, torch.float16}:
        return f"`{x.name}` has dtype {value.dtype} on {value.device}"
    if dim not in {-1, value.dim() - 1} or 2 * size != value.shape[-1]:
        return f"`{halves.name}` does not halve the last dimension"
    if result.shape != (*value.shape[:-1], size) or result.dtype != value.dtype:
        return f"`{product.name}` has shape {list(result.shape)}"
    streams = {node.meta.get("stream_label") for node in (halves, silu, product)}
    if len(streams) != 1:
        return f"on the streams {streams}"
    position = bisect_left(writers, halves)
    if position < len(writers) and writers[position] < product:
        return f"`{writers[position].name}` writes meanwhile"
    if not x < halves < silu < product:
        return "not in order"
    return halves, gate, up, product


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


def _misses_deep(
    x: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, weight: torch.Tensor, size: int
) -> dict[str, torch.Tensor]:
    # Nine operators as in every layer, except the last operand.
    aten, npu = torch.ops.aten, torch.ops.npu
    hidden = aten.linear(npu.npu_rms_norm(x + residual, norm)[0], weight)
    gate, up = aten.split.Tensor(hidden, size, -1)
    return {"y": (aten.silu(gate) * gate), "up": up}


def missing_rules(pattern: Callable[..., dict[str, torch.Tensor]]) -> tuple[fx_passes.Rule, ...]:
    """Return 16 rules that match nowhere."""
    rule = fx_passes.Rule(name="0", patterns=(pattern,), rewrite=lambda *_: {})
    return tuple(replace(rule, name=str(number)) for number in range(16))


def check_by_hand(module: GraphModule) -> int:
    """Check the input of every RMSNorm 16 times for a silu, without a match."""
    found = 0
    for _ in range(16):
        for silu in module.graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default):
            for user in silu.users:
                found += user.target is torch.ops.npu.npu_rms_norm.default
    return found


def check_deep_by_hand(module: GraphModule) -> int:
    """Check every product 16 times, down to the sum before the norm, without a match."""
    aten, npu = torch.ops.aten, torch.ops.npu
    found = 0
    for _ in range(16):
        for product in module.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            silu, other = product.args
            if silu.target is not aten.silu.default:
                continue
            gate = silu.args[0]
            halves = gate.args[0]
            linear = halves.args[0]
            normed = linear.args[0]
            norm = normed.args[0]
            found += (
                halves.target is aten.split.Tensor
                and linear.target is aten.linear.default
                and norm.target is npu.npu_rms_norm.default
                and norm.args[0].target is aten.add.Tensor
                and other is gate
            )
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
    sites: int,
    module: GraphModule,
    subjects: Mapping[str, Callable[[GraphModule], int]],
    options: Options,
) -> list[Row]:
    """Measure all subjects of a case, turn by turn; the first is the floor."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(options.repeats):
        for name, subject in subjects.items():
            slow = name in {"replace_pattern", "register_replacement"}
            if number == 0 or not slow or options.layers <= 16:
                seconds[name].append(measure(module, subject))
    least = {name: min(found) for name, found in seconds.items()}
    floor = least[next(iter(subjects))]
    return [
        Row(
            case=case,
            layers=options.layers,
            sites=sites,
            subject=name,
            seconds=each,
            ratio_to_floor=each / floor,
        )
        for name, each in least.items()
    ]


def fuse_case(
    case: str,
    module: GraphModule,
    by_hand: Callable[[GraphModule], int],
    rule: fx_passes.Rule,
    options: Options,
    peers: Mapping[str, Callable[[GraphModule], int]],
) -> list[Row]:
    """Measure one rule that matches at all sites against a pass for this graph alone."""
    fuse = with_fx_passes(rule)
    expected, found = (
        subject(GraphModule(module, copy.deepcopy(module.graph))) for subject in (by_hand, fuse)
    )
    if found != expected or not expected:
        raise RuntimeError(
            f"{case}: the hand-written pass fuses {expected} sites, the rule {found}"
        )
    subjects = {"hand-written": by_hand, "fx_passes": fuse, **peers}
    return measure_case(case, expected, module, subjects, options)


def miss_case(
    case: str,
    module: GraphModule,
    anchor: OpOverload,
    pattern: Callable[..., dict[str, torch.Tensor]],
    by_hand: Callable[[GraphModule], int],
    options: Options,
) -> list[Row]:
    """Measure 16 rules that are tried at all calls of an operator and match at none."""
    rules = missing_rules(pattern)
    if any(report.matches for report in fx_passes.apply_rules(module.graph, rules)):
        raise RuntimeError(f"{case}: a rule that should miss has matched")
    sites = 16 * len(module.graph.find_nodes(op="call_function", target=anchor))
    subjects: dict[str, Callable[[GraphModule], int]] = {
        "hand-written": by_hand,
        "fx_passes": lambda fresh: len(fx_passes.apply_rules(fresh.graph, rules)),
    }
    return measure_case(case, sites, module, subjects, options)


def roads(layers: int) -> dict[str, float]:
    """Return the seconds of one Dynamo graph that writes, for each method."""
    pipeline = fx_passes.default_npu_pipeline()
    seconds: dict[str, float] = {}

    def model(hidden: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        residual = torch.zeros_like(hidden)
        for norm, up, down in zip(weights[::3], weights[1::3], weights[2::3], strict=True):
            residual.add_(hidden)
            normed = torch.ops.npu.npu_rms_norm(residual, norm)[0]
            gate, other = torch.nn.functional.linear(normed, up).chunk(2, -1)
            hidden = torch.nn.functional.linear(torch.nn.functional.silu(gate) * other, down)
        return hidden + residual

    def backend(module: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        ways: dict[str, Callable[[GraphModule], object]] = {
            "as it is": pipeline.run,
            "functional": lambda fresh: FunctionalBackend(pipeline)(fresh, inputs),
        }
        for name, way in ways.items():
            fresh = GraphModule(module, copy.deepcopy(module.graph))
            begun = time.thread_time()
            way(fresh)
            seconds[name] = time.thread_time() - begun
        return module.forward

    sizes = ((64,), (256, 64), (64, 128))
    weights = [torch.empty(*size, dtype=torch.bfloat16, device="npu") for size in sizes * layers]
    hidden = torch.empty(8, 64, dtype=torch.bfloat16, device="npu")
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(hidden, *weights)
    return seconds


def road_rows(layers: int) -> list[Row]:
    """Measure making a graph functional before the rules, and re-inplacing it after."""
    rounds = [roads(layers) for _ in range(2)]
    least = {name: min(each[name] for each in rounds) for name in rounds[0]}
    floor = next(iter(least.values()))
    case = "pipeline on a graph that writes"
    return [
        Row(
            case=case,
            layers=layers,
            sites=layers,
            subject=name,
            seconds=each,
            ratio_to_floor=each / floor,
        )
        for name, each in least.items()
    ]


def rows_of(options: Options) -> list[Row]:
    """Measure every case at one number of layers."""
    plain = DecoderGraph.build(options.layers)
    quantized = DecoderGraph.build(options.layers, quantized=True)
    peers: dict[str, Callable[[GraphModule], int]] = {}
    if options.layers <= options.peer_layers:
        peers["replace_pattern"] = with_replace_pattern
        peers["register_replacement"] = with_register_replacement
    norm, quant, swiglu = (
        fuse_add_rms_norm(),
        fuse_add_rms_norm_quant(),
        fuse_swiglu(),
    )
    careful = {"hand-written, as careful": careful_swiglu}
    npu, aten = torch.ops.npu, torch.ops.aten
    pipeline = fx_passes.default_npu_pipeline()
    whole: dict[str, Callable[[GraphModule], int]] = {
        "recompile": lambda fresh: len(fresh.recompile().__class__.__name__),
        "fx_passes": lambda fresh: len(pipeline.run(fresh).report.matches()),
    }
    absent = missing_rules(_misses_near)
    nothing: dict[str, Callable[[GraphModule], int]] = {
        "fx_passes": lambda fresh: len(fx_passes.apply_rules(fresh.graph, absent)),
    }
    return [
        *fuse_case("fuse add+norm", plain, hand_written, norm, options, peers),
        *fuse_case("fuse add+norm+quant", quantized, hand_written_quant, quant, options, {}),
        *fuse_case("fuse silu+mul", plain, hand_written_swiglu, swiglu, options, careful),
        *miss_case(
            "16 rules miss at once",
            plain,
            npu.npu_rms_norm.default,
            _misses_anchored,
            check_by_hand,
            options,
        ),
        *miss_case(
            "16 rules miss deep",
            plain,
            aten.mul.Tensor,
            _misses_deep,
            check_deep_by_hand,
            options,
        ),
        *measure_case("16 rules, operators absent", 16, plain, nothing, options),
        *measure_case("default pipeline", options.layers, plain, whole, options),
        *measure_case("default pipeline, int8", options.layers, quantized, whole, options),
        *(road_rows(options.layers) if options.layers <= options.peer_layers else []),
    ]


def cell_of(row: Row) -> str:
    """Return one cell of the table."""
    a_site = row.seconds / row.sites * 1e6
    return f"{row.seconds * 1e3:.2f} ({row.ratio_to_floor:.1f}x; {a_site:.1f})"


def print_table(rows: list[Row]) -> None:
    """Print the rows, one line for each case and subject, one column for each number of layers."""
    layers = sorted({row.layers for row in rows})
    table = Table(title="fx-passes, milliseconds (ratio to the floor; microseconds a site)")
    table.add_column("case")
    table.add_column("subject")
    for each in layers:
        table.add_column(f"{each} layers", justify="right")
    cells = {(row.case, row.subject, row.layers): row for row in rows}
    for case, subject in dict.fromkeys((row.case, row.subject) for row in rows):
        line = []
        for each in layers:
            row = cells.get((case, subject, each))
            line.append("-" if row is None else cell_of(row))
        table.add_row(case, subject, *line)
    Console(width=160).print(table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="8,16,32,64,128")
    parser.add_argument("--peer-layers", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    define_attention()
    rows: list[Row] = []
    for layers in map(int, given.layers.split(",")):
        peer_layers, repeats = given.peer_layers, given.repeats
        rows += rows_of(Options(layers=layers, peer_layers=peer_layers, repeats=repeats))
    print_table(rows)
    folder = Path(__file__).parent.parent / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=1)
    (folder / "fx-passes.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
