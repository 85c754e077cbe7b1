"""Static quantisation after the residual add + RMSNorm, in the forms the engines emit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm_quant
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    capture_graph,
    random_tensors,
)

RULE = "fuse_add_rms_norm_quant"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu
QUANT = npu.npu_add_rms_norm_quant.default


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """An add + norm + quantise step as an engine writes it."""

    eps: float = 1e-6
    dtype: object = 12
    axis: int = -1
    div_mode: bool = False
    joined: bool = True

    def __call__(
        self, x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.joined:
            normed, _, total = npu.npu_add_rms_norm(residual, x, weight, self.eps)
        else:
            total = x + residual
            normed = npu.npu_rms_norm(total, weight, self.eps)[0]
        quantized = npu.npu_quantize(normed, scale, offset, self.dtype, self.axis, self.div_mode)
        return quantized, total


def inputs(dtype: torch.dtype = torch.bfloat16, hidden: int = 64) -> list[Tensor]:
    return random_tensors((6, hidden), (6, hidden), (hidden,), (hidden,), (hidden,), dtype=dtype)


def pipeline() -> fx_passes.Pipeline:
    return fx_passes.default_npu_pipeline()


def fused(module: torch.fx.GraphModule) -> torch.fx.Node:
    (node,) = module.graph.find_nodes(op="call_function", target=QUANT)
    assert isinstance(node, torch.fx.Node)
    return node


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_division_by_the_scale_is_fused(level: GraphLevel, joined: bool, eps: float) -> None:
    module = capture_graph(
        Quantized(div_mode=True, joined=joined, eps=eps).__call__, inputs(), level=level
    )

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert fused(module).kwargs == ({} if eps == 1e-6 else {"epsilon": eps})


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("joined", [True, False])
def test_multiplication_by_the_reciprocal_divides_by_its_inverse(
    level: GraphLevel, joined: bool
) -> None:
    module = capture_graph(Quantized(joined=joined).__call__, inputs(), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    scale = fused(module).args[3]
    assert isinstance(scale, torch.fx.Node)
    assert scale.target is torch.ops.aten.reciprocal.default


def test_reciprocal_in_the_graph_is_not_inverted_again() -> None:
    def function(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        out: Tensor = npu.npu_quantize(normed, 1.0 / scale, None, 12, -1, False)
        return out

    module = capture_graph(function, inputs()[:4])

    assert_rewritten(pipeline(), module, {RULE: 1})

    scale = fused(module).args[3]
    assert isinstance(scale, torch.fx.Node)
    assert scale.op == "placeholder"


def test_half_precision_scales_are_cast_to_the_kernel_table() -> None:
    module = capture_graph(Quantized(div_mode=True).__call__, inputs(torch.float16))
    # Two casts are more launches than the fusion saves.
    rule = replace(fuse_add_rms_norm_quant(), accepts_cost=True)
    rules = fx_passes.RulePass(name="rules", rules=(rule,))

    assert_rewritten(
        fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules)), module, {RULE: 1}
    )

    dtypes = [node.meta["val"].dtype for node in fused(module).args[3:5]]  # type: ignore[union-attr]
    assert dtypes == [torch.float32, torch.int32]


def test_several_layers_and_a_symbolic_batch_are_fused() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        step = Quantized()
        first, residual = step(x, residual, weight, scale, offset)
        return step(first.to(x.dtype), residual, weight, scale, offset)

    module = capture_graph(function, inputs(), dynamic={0: 0, 1: 0})

    assert_rewritten(pipeline(), module, {RULE: 2})


def test_quantisation_along_another_axis_is_left_alone() -> None:
    module = capture_graph(Quantized(axis=0).__call__, inputs())

    assert_left_alone(pipeline(), module, RULE, "along axis 0 of 2")


def test_hidden_size_that_fills_no_block_is_left_alone() -> None:
    module = capture_graph(Quantized().__call__, inputs(hidden=24))

    assert_left_alone(pipeline(), module, RULE, "no multiple of 32 bytes")


def test_scale_outside_the_table_is_left_alone() -> None:
    x, residual, weight, scale, offset = inputs()
    module = capture_graph(Quantized().__call__, [x, residual, weight, scale.float(), offset])

    assert_left_alone(pipeline(), module, RULE, "`scale` has dtype torch.float32")


def test_scale_for_the_whole_tensor_is_left_alone() -> None:
    x, residual, weight, scale, offset = inputs()
    one = [scale[:1].contiguous(), offset[:1].contiguous()]
    module = capture_graph(Quantized().__call__, [x, residual, weight, *one])

    assert_left_alone(pipeline(), module, RULE, "`weight` has shape [64] and `scale` [1]")


def test_norm_also_used_outside_the_quantisation_is_left_to_the_narrower_rule() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, scale, offset = tensors
        normed = npu.npu_rms_norm(x + residual, weight)[0]
        return npu.npu_quantize(normed, scale, offset, 12, -1, True), normed

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, RULE, "inside the match is used by")
    assert npu.npu_add_rms_norm.default in {node.target for node in module.graph.nodes}
