"""A norm read in float32, together with other uses of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import (
    GraphLevel,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu


def inputs(device: str = "meta") -> list[Tensor]:
    return random_tensors((2, 3, 64), (2, 3, 64), (64,), device=device)


def gate_and_experts(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """As a decoder with a mixture of experts writes it: the gate computes in float32."""
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
    rows = normed.view(-1, normed.shape[-1])
    scores = torch.softmax(rows.to(torch.float32) @ torch.eye(64, 4, device=x.device), -1)
    return scores, rows * 2, total


def gate_without_experts(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (npu.npu_rms_norm(x + residual, weight, 1e-6)[0].flatten(0, 1).float() * 2,)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [gate_and_experts, gate_without_experts])
def test_gate_reads_the_result_of_the_kernel(
    level: GraphLevel, function: Callable[..., tuple[Tensor, ...]]
) -> None:
    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {"fuse_add_rms_norm_view_cast": 1})

    casts = [node for node in module.graph.nodes if node.name.startswith(("to", "_to_copy"))]
    assert all(node.args[0].target is not npu.npu_rms_norm.default for node in casts)
    (fused,) = module.graph.find_nodes(op="call_function", target=npu.npu_add_rms_norm_cast.default)
    assert [value.dtype for value in fused.meta["val"]] == [
        torch.float32,
        torch.bfloat16,
        torch.float32,
        torch.bfloat16,
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_norm_that_is_quantised_and_not_read_belongs_to_the_quantisation(
    level: GraphLevel,
) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
        return (*npu.npu_dynamic_quant(normed), total.float())

    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(
        fx_passes.default_npu_pipeline(), module, {"fuse_add_rms_norm_dynamic_quant": 1}
    )


@pytest.mark.parametrize("level", LEVELS)
def test_norm_that_is_quantised_and_read_in_float32_keeps_the_quantisation_apart(
    level: GraphLevel,
) -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
        return (*npu.npu_dynamic_quant(normed), normed.float() * 2, total)

    module = capture_graph(function, inputs(), level=level)

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {"fuse_add_rms_norm_cast": 1})


def cast_written(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
    wide = normed.float()
    wide.add_(1)
    return wide * 2, normed * 2, total


def rows_written(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed = npu.npu_rms_norm(x + residual, weight, 1e-6)[0]
    rows = normed.view(-1, 64)
    wide = rows.float()
    rows.mul_(2)
    return wide * 2, normed + 1, rows + 1


def norm_written_before(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
    normed.mul_(2)
    return normed.float() + 1, total


@pytest.mark.parametrize(
    ("function", "fused"),
    [(cast_written, True), (rows_written, True), (norm_written_before, False)],
)
def test_results_that_are_written_have_the_memory_they_had(
    function: Callable[..., tuple[Tensor, ...]], fused: bool
) -> None:
    module = capture_graph(function, inputs())

    report = fx_passes.default_npu_pipeline().run(module).report

    rules = ("fuse_add_rms_norm_cast", "fuse_add_rms_norm_view_cast")
    assert sum(len(report.matches(rule)) for rule in rules) == fused
    actual, expected = module(*inputs("npu")), function(*inputs("npu"))
    assert_same_values(actual, expected, roundings=4, dtype=torch.bfloat16)
