"""Pattern classes in the style of vLLM-Ascend, and the limits of Inductor's form of a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.errors import PatternError
from fx_passes.inductor import MatchForExtraCheck, rule_from_replacement
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
aten, npu = torch.ops.aten, torch.ops.npu
QUANT = npu.npu_add_rms_norm_dynamic_quant.default


class PatternClass(Protocol):
    """The members of vLLM-Ascend's pattern classes."""

    def get_inputs(self) -> list[Tensor]: ...

    def get_pattern(self) -> Callable[..., object]: ...

    def get_replacement(self) -> Callable[..., object]: ...


class AddRMSNormDynamicQuant:
    """Add, norm and quantisation per token; inputs on an NPU that need not be there."""

    def __init__(self, eps: float, dtype: torch.dtype = torch.bfloat16) -> None:
        self.eps = eps
        self.dtype = dtype

    def get_inputs(self) -> list[Tensor]:
        x = torch.randn(2, 4, device="npu", dtype=self.dtype)
        residual = torch.randn(2, 4, device="npu", dtype=self.dtype)
        weight = torch.randn(4, device="npu", dtype=self.dtype)
        return [x, residual, weight]

    def get_pattern(self) -> Callable[..., object]:
        def pattern(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            output = torch.ops.npu.npu_add_rms_norm(x, residual, weight, self.eps)
            quantized, scale = torch.ops.npu.npu_dynamic_quant(output[0])
            return quantized, scale, output[2]

        return pattern

    def get_replacement(self) -> Callable[..., object]:
        def replacement(
            x: Tensor, residual: Tensor, weight: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            output = torch.ops.npu.npu_add_rms_norm_dynamic_quant(
                x, residual, weight, epsilon=self.eps, output_mask=[True, False]
            )
            return output[0], output[3], output[2]

        return replacement


class QKNorm:
    """Split, a view for each head, norm, view back: shapes are computed from the inputs."""

    def __init__(self, q_size: int, kv_size: int, head_dim: int) -> None:
        self.q_size, self.kv_size, self.head_dim = q_size, kv_size, head_dim

    def get_inputs(self) -> list[Tensor]:
        qkv = torch.empty(5, self.q_size + 2 * self.kv_size, device="npu", dtype=torch.bfloat16)
        return [qkv, torch.empty(self.head_dim, device="npu", dtype=torch.bfloat16)]

    def get_pattern(self) -> Callable[..., object]:
        def pattern(qkv: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = torch.split(qkv, [self.q_size, self.kv_size, self.kv_size], dim=-1)
            heads = q.view(*q.shape[:-1], q.shape[-1] // self.head_dim, self.head_dim)
            normed = torch.ops.npu.npu_rms_norm(heads, weight, 1e-6)[0]
            return normed.view(q.shape), k, v

        return pattern

    def get_replacement(self) -> Callable[..., object]:
        def replacement(qkv: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = torch.split(qkv, [self.q_size, self.kv_size, self.kv_size], dim=-1)
            normed = torch.ops.aten.rms_norm(
                q.reshape(qkv.shape[0], -1, self.head_dim), [self.head_dim], weight, 1e-6
            )
            return normed.reshape(qkv.shape[0], self.q_size), k.clone(), v.clone()

        return replacement


class MulsAdd:
    """Scaled addition; the scale of the model is a literal in the graph."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def get_inputs(self) -> list[Tensor]:
        return [torch.randn(2, 4, device="npu"), torch.randn(2, 4, device="npu")]

    def get_pattern(self) -> Callable[..., object]:
        return lambda x, y: x * self.scale + y

    def get_replacement(self) -> Callable[..., object]:
        return lambda x, y: torch.add(y, x, alpha=self.scale)


def rule_of(pattern: PatternClass, name: str = "rule") -> fx_passes.Rule:
    return rule_from_replacement(
        pattern.get_pattern(), pattern.get_replacement(), pattern.get_inputs, name=name
    )


def pipeline_of(*rules: fx_passes.Rule) -> fx_passes.Pipeline:
    passes = fx_passes.RulePass(name="rules", rules=rules)
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), passes))


def dynamic_quant(eps: float) -> Callable[..., object]:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> object:
        scale = x
        for _ in range(2):
            normed, _, residual = npu.npu_add_rms_norm(x, residual, weight, eps)
            quantized, scale = npu.npu_dynamic_quant(normed)
            x = quantized.to(x.dtype)
        return x, scale, residual

    return function


def qk_norm(head_dim: int) -> Callable[..., object]:
    def function(qkv: Tensor, weight: Tensor) -> object:
        q, k, v = torch.split(qkv, [64, 32, 32], dim=-1)
        heads = q.view(*q.shape[:-1], q.shape[-1] // head_dim, head_dim)
        normed = npu.npu_rms_norm(heads, weight, 1e-6)[0]
        return normed.view(q.shape), k * 2, v

    return function


def targets(module: GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dynamic", [None, {0: 0, 1: 0}])
def test_rule_from_pattern_class_is_applied_at_every_place(
    level: GraphLevel, dynamic: dict[int, int] | None
) -> None:
    inputs = random_tensors((6, 64), (6, 64), (64,), dtype=torch.bfloat16)
    module = capture_graph(dynamic_quant(1e-5), inputs, level=level, dynamic=dynamic)
    pattern = AddRMSNormDynamicQuant(1e-5)

    assert_rewritten(pipeline_of(rule_of(pattern)), module, {"rule": 2})

    assert targets(module).count(QUANT) == 2
    fused = module.graph.find_nodes(op="call_function", target=QUANT)[0]
    assert fused.kwargs == {"epsilon": 1e-5, "output_mask": [True, False]}


def test_rules_of_one_class_with_other_parameters_coexist() -> None:
    inputs = random_tensors((6, 64), (6, 64), (64,), dtype=torch.bfloat16)
    rules = [rule_of(AddRMSNormDynamicQuant(eps), f"rule_{eps}") for eps in (1e-5, 1e-6)]

    for eps in (1e-5, 1e-6):
        module = capture_graph(dynamic_quant(eps), inputs)
        assert_rewritten(pipeline_of(*rules), module, {f"rule_{eps}": 2})


def test_rule_of_other_dtype_matches() -> None:
    inputs = random_tensors((6, 64), (6, 64), (64,), dtype=torch.bfloat16)
    module = capture_graph(dynamic_quant(1e-6), inputs)

    assert_rewritten(
        pipeline_of(rule_of(AddRMSNormDynamicQuant(1e-6, torch.float16))), module, {"rule": 2}
    )


def test_rule_of_other_rank_says_so() -> None:
    inputs = random_tensors((2, 3, 64), (2, 3, 64), (64,), dtype=torch.bfloat16)
    module = capture_graph(dynamic_quant(1e-6), inputs)
    rule = rule_of(AddRMSNormDynamicQuant(1e-6))

    assert_left_alone(pipeline_of(rule), module, "rule", "has 3 dimensions, the example input 2")


# Dynamo reads symbolic sizes of values inside the match, so only AOT's graph is dynamic here.
@pytest.mark.parametrize(("level", "dynamic"), [("dynamo", None), ("aten", None), ("aten", {0: 0})])
def test_sizes_are_computed_again_at_every_match(
    level: GraphLevel, dynamic: dict[int, int] | None
) -> None:
    inputs = random_tensors((7, 128), (16,), dtype=torch.bfloat16)
    module = capture_graph(qk_norm(16), inputs, level=level, dynamic=dynamic)

    assert_rewritten(pipeline_of(rule_of(QKNorm(64, 32, 16))), module, {"rule": 1})

    q = next(iter(reversed(module.graph.nodes))).all_input_nodes[0]
    heads = q.args[0]
    assert isinstance(heads, torch.fx.Node)
    shapes = [node.meta["val"].shape for node in (q, heads)]
    assert list(shapes[0][1:]) == [64]
    assert list(shapes[1][1:]) == [4, 16]
    assert isinstance(shapes[0][0], torch.SymInt) is (dynamic is not None)


def test_same_operators_with_other_sizes_are_left_alone() -> None:
    inputs = random_tensors((7, 128), (32,), dtype=torch.bfloat16)
    module = capture_graph(qk_norm(32), inputs)

    assert_left_alone(pipeline_of(rule_of(QKNorm(64, 32, 16))), module, "rule", "the trace needs")


def test_literal_of_the_pattern_matches_only_itself() -> None:
    inputs = random_tensors((3, 4), (3, 4), dtype=torch.float32)
    rule = rule_of(MulsAdd(2.5))

    module = capture_graph(lambda x, y: x * 2.5 + y, inputs)
    assert_rewritten(pipeline_of(rule), module, {"rule": 1})
    other = capture_graph(lambda x, y: x * 1.5 + y, inputs)
    assert pipeline_of(rule).run(other).report.match_counts() == {"rule": 0}


def test_broadcast_that_the_example_did_not_have_is_left_alone() -> None:
    inputs = random_tensors((3, 4), (1, 4), dtype=torch.float32)
    module = capture_graph(lambda x, y: x * 2.5 + y, inputs)

    assert_left_alone(pipeline_of(rule_of(MulsAdd(2.5))), module, "rule", "the trace needs")


def scaled_add() -> fx_passes.Rule:
    return rule_from_replacement(
        lambda x, y, scale: x * scale + y,
        lambda x, y, scale: torch.add(y, x, alpha=scale),
        lambda: [torch.empty(2, 4, device="npu"), torch.empty(2, 4, device="npu")],
        scalar_workaround={"scale": 0.113377},
        name="rule",
    )


@pytest.mark.parametrize("scale", [2.5, 0.5])
def test_scalar_of_the_workaround_matches_any_value(scale: float) -> None:
    inputs = random_tensors((3, 4), (3, 4), dtype=torch.float32)
    module = capture_graph(lambda x, y: x * scale + y, inputs)

    assert_rewritten(pipeline_of(scaled_add()), module, {"rule": 1})

    (added,) = module.graph.find_nodes(op="call_function", target=aten.add.Tensor)
    assert added.kwargs == {"alpha": scale}


def test_functions_are_traced_once_whatever_the_matches() -> None:
    calls: list[str] = []
    pattern = MulsAdd(2.5)

    def search(x: Tensor, y: Tensor) -> object:
        calls.append("search")
        return pattern.get_pattern()(x, y)

    def replacement(x: Tensor, y: Tensor) -> object:
        calls.append("replace")
        return pattern.get_replacement()(x, y)

    rule = rule_from_replacement(search, replacement, pattern.get_inputs, name="rule")

    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(5):
            x = x * 2.5 + y
        return x

    inputs = random_tensors((2, 4), (2, 4), dtype=torch.float32, device="cpu")
    pipeline_of(rule).run(capture_graph(function, inputs))
    traced = list(calls)
    module = capture_graph(function, random_tensors((3, 4), (3, 4), dtype=torch.float32))
    assert_rewritten(pipeline_of(rule), module, {"rule": 5})

    # The pattern at both levels, the replacement once.
    assert sorted(traced) == ["replace", "search", "search"]
    assert calls == traced


def test_extra_check_sees_the_match_and_may_refuse_it() -> None:
    seen: list[MatchForExtraCheck] = []

    def refuse(match: MatchForExtraCheck) -> bool:
        seen.append(match)
        return False

    pattern = MulsAdd(2.5)
    rule = rule_from_replacement(
        pattern.get_pattern(), pattern.get_replacement(), pattern.get_inputs, refuse, name="rule"
    )
    module = capture_graph(
        lambda x, y: x * 2.5 + y, random_tensors((3, 4), (3, 4), dtype=torch.float32)
    )

    assert_left_alone(pipeline_of(rule), module, "rule", "extra_check says no")

    (match,) = {id(each): each for each in seen[:1]}.values()
    assert [node.target for node in match.nodes] == [aten.mul.Scalar, aten.add.Tensor]
    assert match.output_node() is match.nodes[-1]
    assert set(match.kwargs) == {"x", "y"}


def test_fingerprint_follows_what_is_traced() -> None:
    first, again, other = (rule_of(MulsAdd(scale)) for scale in (2.5, 2.5, 3.5))

    assert first.fingerprint() == again.fingerprint()
    assert first.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("search", "replacement", "message"),
    [
        (lambda x: x.relu(), lambda x: (x, x + 1), "returns 2 tensors"),
        (lambda x: x.add_(1), lambda x: x + 1, "side effects"),
        (lambda x: x.relu(), lambda x: x + torch.tensor([1.0]), "no call of an operator"),
        (lambda x: x.no_such_method(), lambda x: x, "no_such_method"),
        (lambda x: (x.relu(), 3), lambda x: (x, 3), "distinct tensors"),
        (lambda x: x, lambda x: x, "is a parameter"),
    ],
)
def test_functions_that_make_no_rule_raise_and_name_it(
    search: Callable[..., object], replacement: Callable[..., object], message: str
) -> None:
    rule = rule_from_replacement(search, replacement, lambda: [torch.empty(2, 4)], name="my_rule")

    with pytest.raises(PatternError, match=message) as raised:
        _ = rule.compiled

    assert "my_rule" in str(raised.value)


def test_scalar_in_a_computation_raises() -> None:
    rule = rule_from_replacement(
        lambda x, scale: x * scale,
        lambda x, scale: x.div(1 / scale),
        [torch.empty(2, 4)],
        scalar_workaround={"scale": 0.25},
        name="my_rule",
    )

    with pytest.raises(PatternError, match="computes a literal from the scalar 'scale'"):
        _ = rule.compiled


def test_parameters_that_differ_raise_at_once() -> None:
    with pytest.raises(PatternError, match="must be the same"):
        rule_from_replacement(lambda x: x.relu(), lambda y: y.relu(), [torch.empty(2)])


def test_example_inputs_that_are_too_few_raise() -> None:
    rule = rule_from_replacement(lambda x, y: x * y, lambda x, y: y * x, [torch.empty(2)])

    with pytest.raises(PatternError, match="there are 1 examples"):
        _ = replace(rule, name="again").compiled
