"""Cases in which replace_pattern or Inductor's matcher miscompiles, crashes or misses.

Each pattern here is add + RMSNorm + quantisation or a part of it, and each graph one in which one
of the two matchers was seen to go wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm
from fx_passes.normal_form.operator_signature import find_operator
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

npu = torch.ops.npu
QUANT = "fuse_add_rms_norm_quant"
NORM = "fuse_add_rms_norm"
PIPELINE = fx_passes.default_npu_pipeline()


def inputs(count: int = 5) -> list[Tensor]:
    return random_tensors((6, 64), (6, 64), (64,), (64,), (64,))[:count]


def quantize(normed: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    out: Tensor = npu.npu_quantize(normed, scale, offset, 12, -1, True)
    return out


def test_values_of_new_nodes_have_metadata() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight)[0] * 2
        return out

    module = capture_graph(function, inputs(3))

    PIPELINE.run(module)

    for node in module.graph.nodes:
        if node.op == "call_function":
            assert "val" in node.meta
            assert "stack_trace" in node.meta


def test_input_written_between_the_matched_nodes_is_not_fused_across() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        scale.add_(1)
        return quantize(normed, scale, None)

    module = capture_graph(function, inputs(4))

    assert_left_alone(PIPELINE, module, QUANT, "writes a value of the match")


@pytest.fixture(name="attention")
def _attention() -> object:
    name = "fx_passes_tests::attention"
    if find_operator(name) is None:
        torch.library.define(name, "(Tensor q, Tensor(a!) cache, Tensor(b!) out) -> ()")
        torch.library.impl(name, "Meta", lambda q, cache, out: None)
    return torch.ops.fx_passes_tests.attention.default


@pytest.mark.parametrize("touches", ["another value", "the sum"])
def test_attention_that_writes_between_blocks_only_what_it_writes(
    attention: object, touches: str
) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, cache: Tensor) -> Tensor:
        total = x + residual
        out = total if touches == "the sum" else torch.empty_like(total)
        attention(x, cache, out)  # type: ignore[operator]
        normed: Tensor = npu.npu_rms_norm(total, weight)[0]
        return normed + out

    module = capture_graph(function, inputs(4))

    if touches == "the sum":
        assert_left_alone(PIPELINE, module, NORM, "writes a value of the match")
    else:
        assert_rewritten(PIPELINE, module, {NORM: 1})


def test_sum_used_before_the_scale_is_computed_gives_a_valid_graph() -> None:
    def function(
        x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        total = x + residual
        early = total * 3
        normed = npu.npu_rms_norm(total, weight)[0]
        return quantize(normed, scale * 2, None), early

    module = capture_graph(function, inputs(4))

    assert_rewritten(PIPELINE, module, {QUANT: 1})


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 3e-4])
def test_epsilon_equal_to_the_default_and_others_match_one_rule(eps: float) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight, eps)[0]
        return out

    # AOTAutograd drops an argument that equals its default.
    module = capture_graph(function, inputs(3), level="aten")

    assert_rewritten(PIPELINE, module, {NORM: 1})


def test_optional_argument_given_or_not_matches_one_rule() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        first = quantize(npu.npu_rms_norm(x + residual, weight)[0], scale, None)
        second = quantize(npu.npu_rms_norm(residual + x, weight)[0], scale, offset)
        return first, second

    module = capture_graph(function, inputs())

    assert_rewritten(PIPELINE, module, {QUANT: 2})

    fused = module.graph.find_nodes(op="call_function", target=npu.npu_add_rms_norm_quant.default)
    assert [node.args[4] is None for node in fused] == [True, False]


def test_other_dtype_than_the_kernel_takes_is_refused() -> None:
    x, residual, weight, scale, offset = inputs()

    def function(*tensors: Tensor) -> Tensor:
        return quantize(npu.npu_rms_norm(tensors[0] + tensors[1], tensors[2])[0], *tensors[3:])

    wrong = [x.float(), residual.float(), weight.float(), scale.float(), offset]
    module = capture_graph(function, wrong)

    assert_left_alone(PIPELINE, module, QUANT, "the kernel takes torch.bfloat16")


def test_last_layer_without_use_of_the_sum_matches_the_same_rule() -> None:
    def function(*tensors: Tensor) -> Tensor:
        x, residual, weight, scale, offset = tensors
        normed, _, _ = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        return quantize(normed, scale, offset)

    module = capture_graph(function, inputs())

    assert_rewritten(PIPELINE, module, {QUANT: 1})


def test_norm_with_a_second_user_is_refused_by_the_wide_rule() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        return quantize(normed, scale, offset), normed

    module = capture_graph(function, inputs())

    assert_rewritten(PIPELINE, module, {NORM: 1})


def test_two_quantisations_of_one_norm_keep_their_meaning() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        return quantize(normed, scale, offset), quantize(normed, offset, scale)

    module = capture_graph(function, inputs())

    assert_rewritten(PIPELINE, module, {"fuse_add_rms_norm_two_quants": 1})


def test_one_tensor_as_both_summands_matches() -> None:
    def function(*tensors: Tensor) -> Tensor:
        x, _, weight, scale, offset = tensors
        normed, _, _ = npu.npu_add_rms_norm(x, x, weight)
        return quantize(normed, scale, offset)

    module = capture_graph(function, inputs())

    assert_rewritten(PIPELINE, module, {QUANT: 1})


def test_one_tensor_as_weight_and_scale_matches() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        return quantize(npu.npu_rms_norm(x + residual, weight)[0], weight, weight)

    module = capture_graph(function, inputs(3))

    assert_rewritten(PIPELINE, module, {QUANT: 1})


def test_unused_element_that_the_pattern_unpacks_does_no_harm() -> None:
    def pattern(x: Tensor, weight: Tensor) -> dict[str, Tensor]:
        normed, rstd = npu.npu_rms_norm(x * 2, weight)
        return {"normed": normed, "rstd": rstd}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        node = build.call("npu::npu_rms_norm", match.bound["x"], match.bound["weight"])
        return build.elements(node, {"normed": 0, "rstd": 1})

    rule = fx_passes.Rule(name="rule", patterns=(pattern,), rewrite=rewrite)
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))
    x, _, weight = inputs(3)
    module = capture_graph(lambda a, b: npu.npu_rms_norm(a * 2, b)[0], [x, weight])

    # The number 2 is no tensor, but the pattern states it, so it matches itself alone.
    assert_rewritten(pipeline, module, {"rule": 1})
    other = capture_graph(lambda a, b: npu.npu_rms_norm(a * 3, b)[0], [x, weight])
    assert_left_alone(pipeline, other, "rule", "expected 2, found 3")


def test_symbolic_batch_costs_no_other_rule() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        total = x + residual
        return quantize(npu.npu_rms_norm(total, weight)[0], scale, offset), total

    module = capture_graph(function, inputs(), dynamic={0: 0, 1: 0})

    assert_rewritten(PIPELINE, module, {QUANT: 1})


@pytest.mark.parametrize("key", ["stream_label", "custom"])
def test_nodes_of_two_streams_are_not_fused(key: str) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight)[0]
        return out

    module = capture_graph(function, inputs(3))
    for node in module.graph.nodes:
        if node.name == "npu_rms_norm":
            node.meta[key] = "second" if key == "stream_label" else {"stream": 7}

    assert_left_alone(PIPELINE, module, NORM, "run under stream")


def test_nodes_of_one_other_stream_are_fused_and_stay_on_it() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight)[0]
        return out

    module = capture_graph(function, inputs(3))
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.meta["stream_label"] = "second"

    assert_rewritten(PIPELINE, module, {NORM: 1})

    labels = {n.meta.get("stream_label") for n in module.graph.nodes if n.op == "call_function"}
    assert labels == {"second"}


def test_back_to_back_matches_share_their_border() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(6):
            residual = residual + x
            x = npu.npu_rms_norm(residual, weight)[0]
        return x, residual

    module = capture_graph(function, inputs(3))

    assert_rewritten(PIPELINE, module, {NORM: 6})


def test_rules_made_twice_match_as_often_as_made_once() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight)[0]
        return out

    for _ in range(2):
        made = fuse_add_rms_norm()
        rule = replace(made)
        module: GraphModule = capture_graph(function, inputs(3))
        fx_passes.normalize_graph(module)
        (report,) = fx_passes.apply_rules(module.graph, (rule,))
        assert len(report.matches) == 1
