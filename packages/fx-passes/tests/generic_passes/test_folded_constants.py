"""What is computed from constants of a module is computed once, unless it can change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule, symbolic_trace
from torch.nn import Module, Parameter

import fx_passes
from fx_passes.generic_passes import FoldConstantsPass
from fx_passes.testing import assert_same_values, random_tensors

npu = torch.ops.npu


class QuantizedNorm(Module):
    """A norm and a static quantisation whose scale is a parameter, as a frozen graph holds it."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        weight, scale = random_tensors((64,), (64,), dtype=dtype, device="cpu")
        self.weight = Parameter(weight, requires_grad=False)
        self.scale = Parameter(scale.abs() + 10, requires_grad=False)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        normed = npu.npu_add_rms_norm(x, residual, self.weight, 1e-5)[0]
        out: Tensor = npu.npu_quantize(normed, self.scale, None, 1, -1, False)
        return out


def frozen(module: Module, inputs: list[Tensor]) -> GraphModule:
    """Return a graph that holds its parameters, with the metadata of exported graphs."""
    traced = symbolic_trace(module)
    fake = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    values = iter([fake.from_tensor(each) for each in inputs])
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = next(values)
        elif node.op == "get_attr":
            node.meta["val"] = fake.from_tensor(traced.get_parameter(str(node.target)))
        elif node.op == "call_function":
            args = torch.fx.map_arg(node.args, lambda each: each.meta["val"])
            kwargs = torch.fx.map_arg(node.kwargs, lambda each: each.meta["val"])
            with fake:
                node.meta["val"] = node.target(*args, **kwargs)
    return traced


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scale_that_is_a_parameter_is_inverted_and_cast_when_compiled(dtype: torch.dtype) -> None:
    inputs = random_tensors((6, 64), (6, 64), dtype=dtype, device="npu")
    model = QuantizedNorm(dtype).to("npu")
    expected = model(*inputs)
    module = frozen(model, inputs)

    report = fx_passes.default_npu_pipeline().run(module).report

    assert report.match_counts()["fuse_add_rms_norm_quant"] == 1
    called = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert called[0] is npu.npu_add_rms_norm_quant.default
    assert len(called) == 2
    (held,) = [name for name, _ in module.named_buffers() if name.startswith("_fx_passes")]
    inverse = 1 / (model.scale.float() if dtype == torch.float16 else model.scale)
    assert_same_values(module.get_buffer(held), inverse)
    assert_same_values(module(*inputs), expected, roundings=2, dtype=dtype)
    assert not fx_passes.default_npu_pipeline().run(module).modified


def constant_graph(how: str) -> GraphModule:
    """Return the graph of a product with the reciprocal of a buffer, which may be written."""
    aten = torch.ops.aten
    graph = torch.fx.Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    inverse = graph.call_function(aten.reciprocal.default, (scale,))
    written = {"scale_written": scale, "inverse_written": inverse}.get(how)
    if written is not None:
        graph.call_function(aten.add_.Scalar, (written, 1))
    product = graph.call_function(aten.mul.Tensor, (x, inverse))
    graph.output(inverse if how == "returned" else product)
    for node in graph.nodes:
        node.meta["val"] = torch.empty(4, device="meta")
    root = Module()
    root.register_buffer("scale", torch.full((4,), 2.0))
    return GraphModule(root, graph)


@pytest.mark.parametrize(
    ("how", "folded"),
    [("plain", True), ("scale_written", False), ("inverse_written", False), ("returned", False)],
)
def test_constant_is_folded_only_where_it_stays_one(how: str, folded: bool) -> None:
    x = torch.ones(4)
    module = constant_graph(how)
    pipeline = fx_passes.Pipeline(passes=(FoldConstantsPass(),))

    assert pipeline.run(module).modified == folded

    targets = [node.target for node in module.graph.nodes]
    assert (torch.ops.aten.reciprocal.default not in targets) == folded
    assert_same_values(module(x), constant_graph(how)(x))


def test_graph_without_constants_is_left_alone() -> None:
    module = symbolic_trace(lambda x: x.reciprocal() * 2)
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), FoldConstantsPass()))

    assert not pipeline.run(module).modified
