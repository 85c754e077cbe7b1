"""A match never reads a value after it was written: every spelling of a write, on real graphs."""

from __future__ import annotations

import copy
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm_quant
from fx_passes.generic_passes import ShareEqualCallsPass, remove_noops
from fx_passes.testing import assert_same_values, capture_graph

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def _sin_exp(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.exp(torch.sin(x))}


def _build_sin_exp(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    value = match.value("y")
    sine = build.call("aten::sin", match.bound["x"], val=value)
    return {"y": build.call("aten::exp", sine, val=value)}


FUSE = fx_passes.Rule(name="sin_exp", patterns=(_sin_exp,), rewrite=_build_sin_exp)
PIPELINE = fx_passes.Pipeline(
    passes=(
        fx_passes.NormalizePass(),
        fx_passes.RulePass(name="rules", rules=(FUSE,), repeats=False),
    )
)


def _run(
    function: Callable[[Tensor], object], pipeline: fx_passes.Pipeline
) -> tuple[fx_passes.PipelineResult, GraphModule]:
    """Rewrite the graph of Dynamo and compare results and the input after the run."""
    given = torch.linspace(-2, 2, 16).reshape(4, 4)
    module = capture_graph(function, [given.clone()])
    result = pipeline.run(module)
    expected_input, actual_input = given.clone(), given.clone()
    expected = function(expected_input)
    (actual,) = module(actual_input)
    assert_same_values((actual, actual_input), (expected, expected_input))
    return result, module


IN_PLACE: list[tuple[str, Callable[[Tensor], object]]] = [
    ("leaky_relu", lambda x: F.leaky_relu(x, 0.5, True)),
    ("relu", lambda x: F.relu(x, True)),
    ("relu6", lambda x: F.relu6(x, True)),
    ("hardtanh", lambda x: F.hardtanh(x, -1.0, 1.0, True)),
    ("elu", lambda x: F.elu(x, 1.0, True)),
    ("celu", lambda x: F.celu(x, 1.0, True)),
    ("selu", lambda x: F.selu(x, True)),
    ("silu", lambda x: F.silu(x, True)),
    ("mish", lambda x: F.mish(x, True)),
    ("hardswish", lambda x: F.hardswish(x, True)),
    ("hardsigmoid", lambda x: F.hardsigmoid(x, True)),
    ("threshold", lambda x: F.threshold(x, 0.1, 7.0, True)),
    ("dropout", lambda x: F.dropout(x, 1.0, True, True)),
    ("keyword", lambda x: F.leaky_relu(x, inplace=True)),
    ("module", torch.nn.LeakyReLU(0.5, inplace=True)),
    ("method", lambda x: x.mul_(3)),
    ("function", torch.sigmoid_),
    ("out", lambda x: torch.mul(x, x, out=x)),
    ("packet_out", lambda x: torch.ops.aten.mul(x, x, out=x)),
    ("setitem", lambda x: x.__setitem__(1, 5.0)),
    ("iadd", lambda x: operator.iadd(x, 1)),  # type: ignore[no-untyped-call]
    ("imod", lambda x: operator.imod(x, 2)),  # type: ignore[no-untyped-call]
    ("ifloordiv", lambda x: operator.ifloordiv(x, 2)),  # type: ignore[no-untyped-call]
    ("foreach", lambda x: torch._foreach_add_([x, x[0] * 1], 1.0)),
    ("T", lambda x: x.T.mul_(3)),
    ("mT", lambda x: x.mT.mul_(3)),
    ("H", lambda x: x.H.mul_(3)),
    ("real", lambda x: x.real.mul_(3)),
    ("data", lambda x: x.data.mul_(3)),
    ("view", lambda x: x.view(16).mul_(3)),
    ("flatten", lambda x: x.flatten().mul_(3)),
    ("reshape", lambda x: x.reshape(-1).mul_(3)),
    ("unbind", lambda x: x.unbind(0)[1].mul_(3)),
    ("chunk", lambda x: torch.chunk(x, 2)[0].mul_(3)),
    ("index", lambda x: x[1:, ::2].mul_(3)),
    ("same_dtype", lambda x: x.to(torch.float32).mul_(3)),
    ("float", lambda x: x.float().mul_(3)),
    ("contiguous", lambda x: x.contiguous().mul_(3)),
    ("dropout_that_gives_its_input", lambda x: F.dropout(x, 0.5, False).mul_(3)),
    ("type_as", lambda x: x.type_as(x).mul_(3)),
    ("atleast", lambda x: torch.atleast_1d(x).mul_(3)),  # type: ignore[no-untyped-call]
    ("einsum", lambda x: torch.einsum("ij->ji", x).mul_(3)),
    (
        "broadcast_tensors",
        lambda x: torch.broadcast_tensors(x, x)[0].mul_(3),  # type: ignore[no-untyped-call]
    ),
    ("batch_norm", lambda x: F.batch_norm(torch.ones(2, 4) + x[:2], x[0], x[1], training=True)),
]


@pytest.mark.parametrize(("name", "write"), IN_PLACE, ids=[name for name, _ in IN_PLACE])
def test_write_between_matched_nodes_refuses_the_match(
    name: str, write: Callable[[Tensor], object]
) -> None:
    del name

    def function(x: Tensor) -> Tensor:
        sine = torch.sin(x)
        write(x)
        return torch.exp(sine)

    result, _ = _run(function, PIPELINE)

    assert len(result.report.matches("sin_exp")) == 0


def test_nothing_written_is_matched() -> None:
    result, _ = _run(lambda x: torch.exp(torch.sin(x)), PIPELINE)

    assert len(result.report.matches("sin_exp")) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.double().float(), x.add_(1))[0] * 2,
        lambda x: (x.t().reshape(16).reshape(2, 8), x.add_(1))[0] * 2,
        lambda x: (x.t().contiguous().clone(), x.add_(1))[0] * 2,
        lambda x: (x.clone(), x.T.add_(1))[0] * 2,
        lambda x: (x * 1, x.real.add_(1))[0] * 2,
        lambda x: (torch.cat([x]), F.relu6(x, True))[0] * 2,
        lambda x: (1 / (1 / x), F.leaky_relu(x, 0.5, True))[0] * 2,
    ],
)
def test_copy_stays_where_its_source_is_written_later(
    function: Callable[[Tensor], object],
) -> None:
    _run(function, fx_passes.default_npu_pipeline().without("remove_double_reciprocal"))


def test_views_that_stay_views_may_be_written_later() -> None:
    def function(x: Tensor) -> Tensor:
        view = x.view(16).view(2, 8)
        x.add_(1)
        return view * 2

    result, _ = _run(function, fx_passes.default_npu_pipeline())

    assert len(result.report.matches("merge_reshapes")) == 1


def _add_number(x: Tensor, number: float) -> dict[str, Tensor]:
    return {"y": x + number}


def _build_add_in_place(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    value = match.value("y")
    copy = build.call("aten::clone", match.bound["x"], val=value)
    return {"y": build.call("aten::add_.Tensor", copy, match.bound["number"], val=value)}


def test_copy_that_an_earlier_rule_writes_in_place_stays() -> None:
    in_place = fx_passes.Rule(
        name="add_in_place",
        patterns=(_add_number,),
        rewrite=_build_add_in_place,
        accepts_cost=True,
    )
    rules = fx_passes.RulePass(name="rules", rules=(in_place, *remove_noops()), repeats=False)

    result, _ = _run(
        lambda x: (x + 3.0) * x.sin(),
        fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)),
    )

    assert result.report.match_counts()["add_in_place"] == 1


def test_calls_are_not_shared_across_a_hidden_write() -> None:
    def function(x: Tensor) -> Tensor:
        first = x.reciprocal()
        F.leaky_relu(x, 0.5, True)
        return first + x.reciprocal()

    _run(function, fx_passes.default_npu_pipeline())


def test_reciprocal_of_a_scale_written_since_is_inverted_again() -> None:
    """The graph computes one over the scale, then writes the scale, then quantises."""
    graph = Graph()
    meta = torch.device("meta")
    values = {
        "x": torch.empty(2, 64, dtype=torch.float16, device=meta),
        "y": torch.empty(2, 64, dtype=torch.float16, device=meta),
        "weight": torch.empty(64, dtype=torch.float16, device=meta),
        "scale": torch.empty(64, dtype=torch.float16, device=meta),
        "offset": torch.empty(64, dtype=torch.float16, device=meta),
    }
    given = {}
    for name, value in values.items():
        given[name] = graph.placeholder(name)
        given[name].meta["val"] = value

    def call(target: object, *args: object, val: object) -> Node:
        node = graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = val
        return node

    inverse = call(aten.reciprocal.default, given["scale"], val=values["scale"])
    call(aten.mul_.Tensor, given["scale"], 2.0, val=values["scale"])
    total = call(aten.add.Tensor, given["x"], given["y"], val=values["x"])
    rstd = torch.empty(2, 1, device=meta)
    norm = call(
        torch.ops.npu.npu_rms_norm.default, total, given["weight"], 1e-6, val=(values["x"], rstd)
    )
    normed = call(operator.getitem, norm, 0, val=values["x"])
    quantized = call(
        torch.ops.npu.npu_quantize.default,
        normed,
        inverse,
        given["offset"],
        torch.qint8,
        -1,
        False,
        val=torch.empty(2, 64, dtype=torch.int8, device=meta),
    )
    graph.output((quantized, total))
    module = GraphModule(torch.nn.Module(), graph)

    rule = replace(fuse_add_rms_norm_quant(), accepts_cost=True)
    fusing = fx_passes.RulePass(name="fusing", rules=(rule,))
    fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), fusing)).run(module)

    (fused,) = [node for node in module.graph.nodes if "npu_add_rms_norm_quant" in str(node.target)]
    assert given["scale"] not in fused.args


CACHE_OPERATORS = [
    ("npu_kv_rmsnorm_rope_cache", {"k_cache", "ckv_cache"}),
    ("npu_mla_prolog", {"kv_cache", "kr_cache"}),
    ("npu_mla_prolog_v2", {"kv_cache", "kr_cache"}),
    ("npu_rope_quant_kvcache", {"k_cache", "v_cache"}),
    ("npu_dequant_rope_quant_kvcache", {"k_cache", "v_cache"}),
    ("npu_apply_rotary_pos_emb", {"query", "key"}),
]


@pytest.mark.parametrize(("name", "written"), CACHE_OPERATORS)
def test_clone_of_a_cache_stays_where_a_kernel_writes_it(name: str, written: set[str]) -> None:
    overload = getattr(torch.ops.npu, name).default
    for cache in written:
        graph = Graph()
        arguments: list[Any] = []
        copied = graph.placeholder(cache)
        copied.meta["val"] = torch.empty(4, 4, device="meta")
        kept = graph.call_function(aten.clone.default, (copied,))
        kept.meta["val"] = torch.empty(4, 4, device="meta")
        for argument in overload._schema.arguments:
            if argument.kwarg_only:
                break
            if argument.name == cache:
                arguments.append(copied)
            elif "Tensor" in str(argument.type):
                other = graph.placeholder(argument.name)
                other.meta["val"] = torch.empty(4, 4, device="meta")
                arguments.append(other)
            else:
                arguments.append([4])
        call = graph.call_function(overload, tuple(arguments))
        used = graph.call_function(aten.neg.default, (kept,))
        used.meta["val"] = torch.empty(4, 4, device="meta")
        graph.output((call, used))
        module = GraphModule(torch.nn.Module(), graph)

        fx_passes.default_npu_pipeline().run(module)

        assert graph.find_nodes(op="call_function", target=aten.clone.default), cache


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stream_label", "other"),
        ("deterministic_scope_level", 2),
        ("core_limit_scope", {"aic": 8}),
        ("custom", {"stream": 1}),
    ],
)
def test_nodes_under_another_label_are_neither_matched_nor_shared(key: str, value: object) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.exp(torch.sin(x)) + x.reciprocal() * x.reciprocal()

    module = capture_graph(function, [torch.ones(4)])
    plain = copy.deepcopy(module)
    for target in (torch.sin, "reciprocal"):
        op = "call_method" if isinstance(target, str) else "call_function"
        module.graph.find_nodes(op=op, target=target)[0].meta[key] = value
    passes = (*PIPELINE.passes, ShareEqualCallsPass(after=()))
    pipeline = fx_passes.Pipeline(passes=passes)

    pipeline.run(plain)
    result = pipeline.run(module)

    assert len(plain.graph.find_nodes(op="call_function", target=aten.reciprocal.default)) == 1
    assert len(module.graph.find_nodes(op="call_function", target=aten.reciprocal.default)) == 2
    assert len(result.report.matches("sin_exp")) == 0


def test_inputs_that_overlap_are_one_memory() -> None:
    def function(x: Tensor, part: Tensor) -> Tensor:
        sine = torch.sin(part)
        x.mul_(3)
        return torch.exp(sine)

    given = torch.linspace(-2, 2, 16).reshape(4, 4)
    shared = given.clone()
    module = capture_graph(function, [shared, shared[1:]])
    PIPELINE.run(module)
    first, second = given.clone(), given.clone()

    expected = function(first, first[1:])
    # Dynamo found the part first.
    (actual,) = module(second[1:], second)

    assert_same_values((actual, second), (expected, first))
