"""Static W8A8 as SGLang emits it: our rules together with the patterns of torch_npu."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import capture_graph, random_tensors

with warnings.catch_warnings():
    # Inductor's own modules use what torch has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_npu.dynamo import npugraph_ex  # noqa: F401  # makes its modules importable
    from torch_npu.dynamo.npugraph_ex.patterns.add_rms_norm_quant import (
        _register_addrmsnormquant_patterns,
    )
    from torch_npu.dynamo.npugraph_ex.patterns.pattern_pass_manager import _PatternPassManager

npu = torch.ops.npu
FUSED = npu.npu_add_rms_norm_quant.default


def graph_of(*, div_mode: bool) -> torch.fx.GraphModule:
    """Return the graph of two layers; SGLang passes the reciprocal and multiplies by it."""

    def function(
        x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, offset: Tensor
    ) -> object:
        for _ in range(2):
            normed, _, residual = npu.npu_add_rms_norm(x, residual, weight, 1e-6)
            quantized = npu.npu_quantize(normed, scale, offset, torch.qint8, -1, div_mode)
            x = quantized.to(x.dtype)
        return x, residual

    # Inductor's matcher leaves alone what is on no device.
    shapes = ((6, 64), (6, 64), (64,), (64,), (64,))
    return capture_graph(
        function, random_tensors(*shapes, dtype=torch.bfloat16, device="npu"), level="aten"
    )


def fused_by_torch_npu(module: torch.fx.GraphModule) -> int:
    patterns = _PatternPassManager()
    _register_addrmsnormquant_patterns(patterns)
    patterns.apply_pass(module.graph)
    return len(module.graph.find_nodes(op="call_function", target=FUSED))


def fused_by_fx_passes(module: torch.fx.GraphModule) -> int:
    fx_passes.default_npu_pipeline().run(module)
    return len(module.graph.find_nodes(op="call_function", target=FUSED))


@pytest.mark.parametrize(("div_mode", "by_torch_npu"), [(True, 2), (False, 0)])
def test_reciprocal_form_is_fused_here_and_not_by_torch_npu(
    div_mode: bool, by_torch_npu: int
) -> None:
    assert fused_by_fx_passes(graph_of(div_mode=div_mode)) == 2
    assert fused_by_torch_npu(graph_of(div_mode=div_mode)) == by_torch_npu
