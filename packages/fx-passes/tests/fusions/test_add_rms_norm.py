"""The residual add + RMSNorm fusion on graphs as torch.compile gives them."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

RULE = "fuse_add_rms_norm"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu


def pipeline() -> fx_passes.Pipeline:
    return fx_passes.Pipeline(
        passes=(
            fx_passes.NormalizePass(),
            fx_passes.RulePass(name="fusions", rules=(fuse_add_rms_norm(),)),
        )
    )


def inputs(
    dtype: torch.dtype = torch.bfloat16, device: str = "meta", hidden: int = 64
) -> list[Tensor]:
    return random_tensors((6, hidden), (6, hidden), (hidden,), dtype=dtype, device=device)


def targets(module: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return npu.npu_rms_norm(total, weight, 1e-6)[0], total


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_add_norm_of_any_dtype_is_fused(level: GraphLevel, dtype: torch.dtype) -> None:
    module = capture_graph(add_norm, inputs(dtype), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert npu.npu_add_rms_norm.default in targets(module)
    assert npu.npu_rms_norm.default not in targets(module)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("eps", [1e-5, 1e-6, 0.25])
def test_any_epsilon_is_bound_and_passed_on(level: GraphLevel, eps: float) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight, epsilon=eps)[0]
        return out

    module = capture_graph(function, inputs(), level=level)

    report = assert_rewritten(pipeline(), module, {RULE: 1})

    (match,) = report.matches(RULE)
    assert match.literals == {"epsilon": repr(eps)}
    (fused,) = module.graph.find_nodes(op="call_function", target=npu.npu_add_rms_norm.default)
    # In normal form the default is left out.
    assert fused.args[3:] == (() if eps == 1e-6 else (eps,))


@pytest.mark.parametrize("level", LEVELS)
def test_default_epsilon_and_keywords_are_fused(level: GraphLevel) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        total = torch.add(input=x, other=residual)
        out: Tensor = npu.npu_rms_norm(gamma=weight, input=total)[0]
        return out

    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})


@pytest.mark.parametrize("level", LEVELS)
def test_both_orders_of_the_addition_are_fused(level: GraphLevel) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        first = npu.npu_rms_norm(x + residual, weight)[0]
        second = npu.npu_rms_norm(residual + first, weight)[0]
        return first, second

    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(pipeline(), module, {RULE: 2})


@pytest.mark.parametrize("level", LEVELS)
def test_unused_sum_and_used_rstd_need_no_rule_of_their_own(level: GraphLevel) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        normed, rstd = npu.npu_rms_norm(x + residual, weight)
        return normed, rstd

    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    elements = [n.args[1] for n in module.graph.nodes if n.target is operator.getitem]
    assert sorted(elements) == [0, 1]


def test_chain_of_residuals_is_fused_at_every_layer() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(5):
            residual = x + residual
            x = npu.npu_rms_norm(residual, weight)[0]
            x = torch.nn.functional.silu(x)
        return x, residual

    module = capture_graph(function, inputs())

    assert_rewritten(pipeline(), module, {RULE: 5})


def test_symbolic_batch_is_fused_with_symbolic_metadata() -> None:
    module = capture_graph(add_norm, inputs(), dynamic={0: 0, 1: 0})

    assert_rewritten(pipeline(), module, {RULE: 1})

    (fused,) = module.graph.find_nodes(op="call_function", target=npu.npu_add_rms_norm.default)
    assert all(isinstance(value.shape[0], torch.SymInt) for value in fused.meta["val"])


def test_same_tensor_added_to_itself_is_fused() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + x, weight)[0]
        return out

    x, _, weight = inputs()
    module = capture_graph(function, [x, weight])

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_sum_used_before_and_after_the_norm_keeps_the_order() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = x + residual
        before = total * 2
        normed = npu.npu_rms_norm(total, weight)[0]
        return before, normed, total * normed

    module = capture_graph(function, inputs())

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_weight_computed_after_the_first_use_of_the_sum_moves_that_use_down() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        early = total * 2
        normed = npu.npu_rms_norm(total, weight * 2)[0]
        return early, normed

    module = capture_graph(function, inputs())

    assert_rewritten(pipeline(), module, {RULE: 1})

    order = targets(module)
    scaled, fused, _, _, early = order
    assert scaled is early is torch.ops.aten.mul.Tensor or order.count(scaled) == 2
    assert fused is npu.npu_add_rms_norm.default


def test_weight_that_depends_on_the_sum_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        total = x + residual
        out: Tensor = npu.npu_rms_norm(total, weight * total[0])[0]
        return out

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "depends on an output")


def test_other_alpha_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(torch.add(x, residual, alpha=2), weight)[0]
        return out

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "expected 1, found 2")


def test_added_number_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + 3.0, weight)[0]
        return out

    x, _, weight = inputs()
    module = capture_graph(function, [x, weight])

    assert_left_alone(pipeline(), module, RULE, "expected a tensor for `residual`")


def test_broadcast_is_left_alone() -> None:
    x, _, weight = inputs()
    module = capture_graph(add_norm, [x, torch.empty_like(weight), weight])

    assert_left_alone(pipeline(), module, RULE, "does not broadcast")


def test_mixed_dtypes_are_left_alone() -> None:
    x, residual, weight = inputs()
    module = capture_graph(add_norm, [x, residual, weight.float()])

    assert_left_alone(pipeline(), module, RULE, "takes one dtype")


def test_dtype_outside_the_table_is_left_alone() -> None:
    module = capture_graph(add_norm, inputs(torch.float64))

    assert_left_alone(pipeline(), module, RULE, "the kernel takes torch.bfloat16")


def test_sum_written_between_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        total = x + residual
        total.add_(1)
        out: Tensor = npu.npu_rms_norm(total, weight)[0]
        return out

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "writes a value of the match")


def test_input_written_between_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        weight.mul_(2)
        normed = npu.npu_rms_norm(total, weight)[0]
        return normed, total

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "`mul_` writes a value of the match")


def test_view_of_an_input_written_between_is_left_alone() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        row = residual[0]
        total = x + residual
        row.zero_()
        out: Tensor = npu.npu_rms_norm(total, weight)[0]
        return out + residual

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "writes a value of the match")


def test_write_to_another_tensor_between_does_not_matter() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, other: Tensor) -> Tensor:
        total = x + residual
        other.add_(1)
        out: Tensor = npu.npu_rms_norm(total, weight)[0]
        return out + other

    module = capture_graph(function, [*inputs(), torch.empty(6, 64, device="meta")])

    assert_rewritten(pipeline(), module, {RULE: 1})


def test_nodes_on_two_streams_are_left_alone() -> None:
    module = capture_graph(add_norm, inputs())
    fx_passes.normalize_graph(module)
    (norm,) = module.graph.find_nodes(op="call_function", target=npu.npu_rms_norm.default)
    norm.meta["stream_label"] = "second"

    assert_left_alone(pipeline(), module, RULE, "run under stream None and 'second'")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numerics_agree_within_a_rounding(dtype: torch.dtype) -> None:
    tensors = inputs(dtype, "npu")
    module = capture_graph(add_norm, tensors)
    expected = add_norm(*tensors)

    assert_rewritten(pipeline(), module, {RULE: 1})

    # One rounding of the sum that a kernel may leave out, passed on through the norm, and one of
    # the result.
    assert_same_values(module(*tensors), expected, roundings=2)
