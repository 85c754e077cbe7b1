"""The backend that torch.compile finds by name, on the NPU, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from npu_compile import Backend, CompileConfig
from npu_graph_runtime import CaptureSession, GraphContext, GraphKey, RunMode
from npu_graph_runtime.errors import InputAddressError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

HIDDEN = 64


class Block(torch.nn.Module):
    """A residual sum, its norm, and a gated feed-forward layer."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weight(*shape: int) -> torch.nn.Parameter:
            values = torch.randn(shape, generator=generator) / HIDDEN**0.5
            return torch.nn.Parameter(values.to("npu", dtype), requires_grad=False)

        self.norm = weight(HIDDEN)
        self.gate_up = weight(2 * HIDDEN, HIDDEN)
        self.down = weight(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        residual = x + residual
        normed = torch.ops.npu.npu_rms_norm(residual, self.norm, 1e-6)[0]
        gate, up = torch.nn.functional.linear(normed, self.gate_up).chunk(2, dim=-1)
        down = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, self.down)
        return down + residual


def _inputs(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x, residual = torch.randn(2, rows, HIDDEN, generator=generator).to(dtype)
    return x.npu(), residual.npu()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backend_by_name_fuses_and_keeps_the_values(device: NpuDevice, dtype: torch.dtype) -> None:
    block = Block(dtype)
    compiled = torch.compile(block, backend="npu_compile", fullgraph=True, dynamic=True)
    for rows in (3, 5):
        inputs = _inputs(rows, dtype)
        with torch.no_grad():
            expected = block(*inputs)
            device.synchronize()
            before = cann_sim.counters()
            output = compiled(*inputs)
            device.synchronize()
        operators = (cann_sim.counters() - before).launches_by_operator

        assert operators["aclnnAddRmsNorm"] == 1
        assert "aclnnRmsNorm" not in operators
        assert "aclnnSilu" not in operators
        # Silu and its product are rounded once instead of twice: two roundings of values near 1.
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(output.cpu(), expected.cpu(), rtol=tolerance, atol=tolerance)


def test_backend_object_reports_what_it_fused(device: NpuDevice) -> None:
    backend = Backend(CompileConfig(disabled_fusions=("fuse_swiglu",)))
    compiled = torch.compile(Block(torch.bfloat16), backend=backend, fullgraph=True)

    with torch.no_grad():
        compiled(*_inputs(2, torch.bfloat16))

    (report,) = backend.reports
    assert report.fusions is not None
    counts = report.fusions.match_counts()
    assert counts["fuse_add_rms_norm"] == 1
    assert "fuse_swiglu" not in counts


def test_backend_by_name_refuses_a_splitting_op_whose_output_moves(device: NpuDevice) -> None:
    context = GraphContext()
    options: dict[str, Any] = {
        "mode": "piecewise",
        "splitting_ops": ["npu::npu_swiglu"],
        "device": device,
        "context": context,
    }
    block = Block(torch.bfloat16)
    compiled = torch.compile(block, backend="npu_compile", fullgraph=True, options=options)
    inputs = _inputs(4, torch.bfloat16)
    key = GraphKey(num_tokens=4)
    with torch.no_grad(), CaptureSession(device, context), context.run(RunMode.PIECEWISE, key):
        compiled(*inputs)

    # The operator runs eagerly and gives its output a new address, which no graph reads: the old
    # one is taken.
    taken = [torch.empty(4, HIDDEN, dtype=torch.bfloat16, device="npu") for _ in range(256)]
    with torch.no_grad(), context.run(RunMode.PIECEWISE, key), pytest.raises(InputAddressError):
        compiled(*inputs)
    del taken
