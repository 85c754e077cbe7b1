"""Rules under `torch.compile(dynamic=True)`, where sizes of inputs and floats are symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fusions.reference_pipeline import reference_pipeline
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    import fx_passes

npu = torch.ops.npu
HIDDEN, HEAD = 64, 16


class Layer(Module):
    """Weights of a norm and a quantisation, and an eps that Dynamo makes an input of the graph."""

    def __init__(self) -> None:
        super().__init__()
        weight, scale, angles = random_tensors((HIDDEN,), (HIDDEN,), (32, HEAD), device="npu")
        self.eps, self.k_eps = 1e-5, 1e-5
        self.weight = Parameter(weight, requires_grad=False)
        self.head_weight = Parameter(weight[:HEAD].clone(), requires_grad=False)
        self.reciprocal = Parameter(scale.abs() + 10, requires_grad=False)
        self.offset = Parameter(torch.zeros_like(scale), requires_grad=False)
        self.angles = Parameter(angles, requires_grad=False)


class AddNorm(Layer):
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        total = x + residual
        return npu.npu_rms_norm(total, self.weight, self.eps)[0], total


class StaticQuant(Layer):
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        normed, _, total = npu.npu_add_rms_norm(x, residual, self.weight, self.eps)
        scales = self.reciprocal, self.offset
        return npu.npu_quantize(normed, *scales, torch.qint8, -1, False), total


class DynamicQuant(Layer):
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        normed, _, total = npu.npu_add_rms_norm(x, residual, self.weight, self.eps)
        return (*npu.npu_dynamic_quant(normed), total)


class Heads(Layer):
    """q, k and v of two heads, one and one."""

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
        heads = x.reshape(-1, x.shape[-1] // HEAD, HEAD)
        normed = npu.npu_rms_norm(heads, self.head_weight, eps)[0]
        turned: Tensor = npu.npu_rotary_mul(normed.unsqueeze(0), cos, sin).squeeze(0)
        return turned

    def forward(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([2 * HEAD, HEAD, HEAD], dim=-1)  # type: ignore[no-untyped-call]
        rows = self.angles.index_select(0, positions).view(1, -1, 1, HEAD)
        cos, sin = rows.cos(), rows.sin()
        eps = self.eps
        return self.rotated(q, cos, sin, eps), self.rotated(k, cos, sin, eps), v * 1.5


class HeadsOfTwoNorms(Heads):
    def forward(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([2 * HEAD, HEAD, HEAD], dim=-1)  # type: ignore[no-untyped-call]
        rows = self.angles.index_select(0, positions).view(1, -1, 1, HEAD)
        cos, sin = rows.cos(), rows.sin()
        return self.rotated(q, cos, sin, self.eps), self.rotated(k, cos, sin, self.k_eps), v * 1.5


def run(model: Module, *inputs: Tensor) -> tuple[fx_passes.Report, tuple[Tensor, ...]]:
    reports: list[fx_passes.Report] = []

    def backend(module: GraphModule, _: object) -> Callable[..., object]:
        floats = [node for node in module.graph.nodes if node.target == "item"]
        assert floats, "no eps is a symbol"
        reports.append(reference_pipeline().run(module).report)
        return module.forward

    torch.compiler.reset()
    with torch.no_grad():
        outputs = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)(*inputs)
    return reports[0], outputs


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (AddNorm, "fuse_add_rms_norm"),
        (StaticQuant, "fuse_add_rms_norm_quant"),
        (DynamicQuant, "fuse_add_rms_norm_dynamic_quant"),
    ],
)
def test_norms_are_fused_where_eps_and_sizes_are_symbols(kind: type[Layer], rule: str) -> None:
    model, inputs = kind(), random_tensors((6, HIDDEN), (6, HIDDEN), device="npu")

    report, outputs = run(model, *inputs)

    assert report.match_counts()[rule] == 1
    for found, expected in zip(outputs, model(*inputs), strict=True):
        bound = 1 if found.dtype == torch.int8 else 0.05
        assert (found.cpu().float() - expected.cpu().float()).abs().max() <= bound


def test_heads_are_fused_where_both_norms_have_one_symbolic_eps() -> None:
    (qkv,) = random_tensors((6, HIDDEN), device="npu")
    model, positions = Heads(), torch.arange(6, device="npu")

    report, outputs = run(model, qkv, positions)

    assert report.match_counts()["fuse_split_qkv_rms_norm_rope"] == 1, str(report)
    for found, expected in zip(outputs, model(qkv, positions), strict=True):
        torch.testing.assert_close(found.cpu(), expected.cpu())


def test_heads_with_two_symbolic_eps_say_what_to_do() -> None:
    (qkv,) = random_tensors((6, HIDDEN), device="npu")

    report, _ = run(HeadsOfTwoNorms(), qkv, torch.arange(6, device="npu"))

    (miss,) = report.near_misses("fuse_split_qkv_rms_norm_rope")
    assert "not known to be equal" in miss.reason
    assert "mark_dynamic" in miss.reason
