"""Operators that are not simulated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu


def missing(values: torch.Tensor) -> torch.Tensor:
    """Call a torch operator whose aclnn operator is not simulated."""
    result: torch.Tensor = torch_npu.npu_fused_linear_online_max_sum(values, values, values, 0, 1)[
        0
    ]
    return result


uses_the_missing_operator = pytest.mark.absent_in_torch_npu(
    "2.10", reason="no operator npu_fused_linear_online_max_sum"
)


@uses_the_missing_operator
def test_missing_operator_names_itself_and_the_torch_operator() -> None:
    values = torch.ones(1, 1, 4, 3).to("npu")
    with pytest.raises(
        RuntimeError,
        match=r"aclnnFusedLinearOnlineMaxSum is not simulated; .* npu::npu_fused_linear",
    ):
        missing(values)


def test_missing_npu_operator_names_itself_and_the_torch_operator() -> None:
    values = torch.ones(16, 16, dtype=torch.bfloat16).to("npu")
    with pytest.raises(
        RuntimeError,
        match=r"aclnnMatmulAllReduce\w* is not simulated; .* npu::npu_mm_all_reduce_base",
    ):
        torch_npu.npu_mm_all_reduce_base(values, values, "group")


def test_operator_of_other_devices_is_refused_with_that_reason() -> None:
    values = torch.ones(4, 64, dtype=torch.bfloat16).to("npu")
    reason = r"aclnnDynamicMxQuant\w*: the simulated Ascend910B1 does not have this operator, .*"
    with pytest.raises(RuntimeError, match=reason + r"called by .* npu::npu_dynamic_mx_quant"):
        torch_npu.npu_dynamic_mx_quant(values)


def test_missing_operator_reached_through_a_composite_names_the_inner_one() -> None:
    values = torch.ones(3, 4).to("npu").requires_grad_()
    result = torch.repeat_interleave(values, torch.tensor([1, 2, 1]).to("npu"), 0)
    inner = r"aclnnRepeatInterleaveGrad: .* npu::repeat_interleave_backward_tensor"
    with pytest.raises(RuntimeError, match=inner):
        torch.autograd.grad(result.sum(), values)


@uses_the_missing_operator
def test_missing_operator_fails_while_capturing_as_well() -> None:
    values = torch.ones(1, 1, 4, 3).to("npu")
    graph = torch_npu.npu.NPUGraph()
    with (
        pytest.raises(RuntimeError, match="aclnnFusedLinearOnlineMaxSum is not simulated"),
        torch_npu.npu.graph(graph),
    ):
        missing(values)
    torch_npu.npu.synchronize()
    assert (values + 1).sum().item() == 24


def test_operator_of_the_older_api_names_itself_and_the_torch_operator(refusal_of: Any) -> None:
    expected = "operator Iou is not simulated; the torch operator npu::npu_ptiou needs it"
    assert expected in refusal_of("torch_npu.npu_ptiou(*[torch.ones(4, 4).npu()] * 2)")


@uses_the_missing_operator
def test_status_is_that_of_the_failed_call() -> None:
    with pytest.raises(RuntimeError, match="error code is 561112"):
        missing(torch.ones(1, 1, 2, 2).to("npu"))
    with pytest.raises(RuntimeError, match="error code is 161002"):
        torch_npu.npu_rms_norm(torch.ones(2, 8).to("npu"), torch.ones(4).to("npu"))


@uses_the_missing_operator
def test_process_continues_after_a_refusal() -> None:
    with pytest.raises(RuntimeError, match="not simulated"):
        missing(torch.ones(1, 1, 2, 2).to("npu"))
    assert torch.ones(3).to("npu").sum().item() == 3


def test_validation_names_the_torch_operator() -> None:
    with pytest.raises(
        RuntimeError, match=r"aclnnRmsNorm: .* \(called by the torch operator npu::npu_rms_norm\)"
    ):
        torch_npu.npu_rms_norm(torch.ones(2, 8).to("npu"), torch.ones(4).to("npu"))
