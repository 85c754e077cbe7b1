"""Clipped SwiGLU: devices without the kernel, literals of the graph, and values beyond limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.raising import raising_pipeline
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

RULE = "fuse_clipped_swiglu"
LIMIT = 7.0


def gpt_oss(x: Tensor) -> Tensor:
    gate, up = x[..., ::2], x[..., 1::2]
    gate = gate.clamp(min=None, max=LIMIT)
    up = up.clamp(min=-LIMIT, max=LIMIT)
    glu = gate * torch.sigmoid(gate * 1.702)
    return (up + 1) * glu


@pytest.mark.parametrize(
    ("soc", "fused"),
    [("", 1), ("Ascend910B1", 1), ("Ascend910_9391", 1), ("Ascend950DT", 0), ("Ascend310P3", 0)],
)
def test_kernel_is_of_some_devices(soc: str, fused: int) -> None:
    module = capture_graph(gpt_oss, random_tensors((6, 64)))

    report = fx_passes.default_npu_pipeline(soc=soc).run(module).report

    assert len(report.matches(RULE)) == fused
    reasons = [miss.reason for miss in report.near_misses(RULE)]
    assert fused or any(f"the rule was made for {soc}" in reason for reason in reasons)


def test_number_of_the_graph_is_no_literal() -> None:
    def scaled(x: Tensor) -> Tensor:
        gate, up = x[..., ::2].clamp(max=LIMIT), x[..., 1::2].clamp(min=-LIMIT, max=LIMIT)
        return gate * torch.sigmoid(gate * x.shape[0]) * (up + 1)

    module = capture_graph(scaled, random_tensors((6, 64)), dynamic={0: 0})

    assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, "it must be a number")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_parts_beyond_the_limits_are_clipped(dtype: torch.dtype) -> None:
    (x,) = random_tensors((6, 64), dtype=dtype)
    module = capture_graph(gpt_oss, [x])

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})

    (x,) = random_tensors((6, 64), dtype=dtype, device="npu")
    x = x * 10
    assert bool((x.abs() > LIMIT).any())
    assert_same_values(module(x)[0], gpt_oss(x), roundings=2)


def test_dynamic_quantisation_behind_stays_an_operator() -> None:
    def joined(x: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = x[..., :64].clamp(max=LIMIT), x[..., 64:].clamp(min=-LIMIT, max=LIMIT)
        activated = torch.ops.npu.npu_swiglu(torch.cat([gate, up], dim=-1))
        quantized, scale = torch.ops.npu.npu_dynamic_quant(activated)
        return quantized, scale

    module = capture_graph(joined, random_tensors((6, 128)))

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})


def test_raised_form_becomes_the_one_operator() -> None:
    def plain(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        gate, up = gate.clamp(max=LIMIT), up.clamp(min=-LIMIT, max=LIMIT)
        return torch.nn.functional.silu(gate) * up

    module = capture_graph(plain, random_tensors((6, 64)))

    raising_pipeline().run(module)

    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.npu.npu_clipped_swiglu.default]
