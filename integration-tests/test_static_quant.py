"""Static quantisation as engines call it is one launch per site through every entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import cann_sim
from fx_passes import default_npu_pipeline
from npu_compile import Backend, CompileConfig, CompileMode, compile_model
from npu_graph_runtime import CaptureSession, GraphContext, GraphKey, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice

SITES, HIDDEN, TOKENS = 4, 64, 4
KEY = GraphKey(num_tokens=TOKENS)


class Site(torch.nn.Module):
    """A norm, and a quantisation by a reciprocal: a parameter (SGLang), or none (vLLM-Ascend)."""

    def __init__(self, dtype: torch.dtype, *, is_parameter: bool) -> None:
        super().__init__()

        def parameter(value: torch.Tensor) -> torch.nn.Parameter:
            return torch.nn.Parameter(value.to("npu", dtype), requires_grad=False)

        scale = torch.linspace(0.05, 0.1, HIDDEN)
        self.weight = parameter(torch.ones(HIDDEN))
        self.offset = parameter(torch.zeros(HIDDEN))
        self.reciprocal: torch.Tensor = 1 / parameter(scale)
        if is_parameter:
            self.reciprocal = parameter(1 / scale)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, ...]:
        npu = torch.ops.npu
        normed, _, total = npu.npu_add_rms_norm(x, residual, self.weight, 1e-6)
        scales = self.reciprocal, self.offset
        return npu.npu_quantize(normed, *scales, torch.qint8, -1, False), total


class Layers(torch.nn.Module):
    def __init__(self, dtype: torch.dtype, *, is_parameter: bool = True) -> None:
        super().__init__()
        sites = (Site(dtype, is_parameter=is_parameter) for _ in range(SITES))
        self.sites = torch.nn.ModuleList(sites)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for site in self.sites:
            quantized, residual = site(x, residual)
            results.append(quantized)
        return results


def _scale_of(model: Layers, place: int) -> torch.Tensor:
    site = model.sites[place]
    assert isinstance(site, Site)
    return site.reciprocal


def _dynamo(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    del device, inputs

    def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        default_npu_pipeline().run(module)
        return module.forward

    return torch.compile(model, backend=backend, fullgraph=True)


def _aten(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    del device
    traced = make_fx(model)(*inputs)
    default_npu_pipeline().run(traced)
    return traced


def _backend(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    del device, inputs
    return torch.compile(model, backend="npu_compile", fullgraph=True)


def _pieces(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    """Pieces are captured one by one, and the values they read are made outside of them."""
    context = GraphContext()
    config = CompileConfig(
        mode=CompileMode.PIECEWISE, capture_sizes=(TOKENS,), splitting_ops=("aten::bitwise_not",)
    )
    backend = Backend(config, device=device, context=context)

    def inverted(x: torch.Tensor, residual: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for site in model.sites:
            quantized, residual = site(x, residual)
            results.append(torch.ops.aten.bitwise_not.default(quantized))
        return results

    compiled = torch.compile(inverted, backend=backend, fullgraph=True)

    def run(*given: torch.Tensor) -> object:
        with context.run(RunMode.PIECEWISE, KEY):
            return [torch.bitwise_not(each) for each in compiled(*given)]

    with CaptureSession(device, context):
        run(*inputs)
    assert len(backend.captured_pieces) == SITES
    return run


def _compiled(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    del inputs
    return compile_model(model, None, device=device)


def _full(model: Layers, device: NpuDevice, inputs: list[torch.Tensor]) -> Any:
    config = CompileConfig(mode=CompileMode.FULL, capture_sizes=(TOKENS,))
    compiled = compile_model(model, config, device=device)

    def run(*given: torch.Tensor) -> object:
        with compiled.context.run(RunMode.FULL, KEY):
            return compiled(*given)

    with compiled.capture_session():
        run(*inputs)
    run.compiled = compiled  # type: ignore[attr-defined]
    return run


DOORS = [_dynamo, _aten, _backend, _pieces, _compiled, _full]
every_door = pytest.mark.parametrize("door", DOORS, ids=lambda each: each.__name__.strip("_"))


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(TOKENS, HIDDEN, generator=generator).to("npu", dtype) for _ in range(2)]


def _launches(run: Callable[..., object], device: NpuDevice, inputs: list[torch.Tensor]) -> int:
    device.synchronize()
    before = cann_sim.counters()
    run(*inputs)
    device.synchronize()
    done = cann_sim.counters() - before
    return done.launches + done.replayed_kernels


def _assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """The fused kernel quantises the norm before it is rounded: values may differ by one."""
    for one, other in zip(found, expected, strict=True):
        assert (one.cpu().int() - other.cpu().int()).abs().max() <= 1


@every_door
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_parameter", [True, False])
def test_a_site_is_one_launch_and_a_changed_scale_is_seen(
    door: Callable[..., Any], dtype: torch.dtype, is_parameter: bool, device: NpuDevice
) -> None:
    torch.compiler.reset()
    model, inputs = Layers(dtype, is_parameter=is_parameter), _inputs(dtype)
    with torch.no_grad():
        before = _launches(model, device, inputs)
        run = door(model, device, inputs)
        run(*inputs)
        more = 2 * SITES if door is _pieces else 0

        assert before == 2 * SITES
        assert _launches(run, device, inputs) == SITES + more
        _assert_close(run(*inputs), model(*inputs))

        _scale_of(model, 1).mul_(0.25)
        first = [each.clone() for each in run(*inputs)]

        _assert_close(first, model(*inputs))
        assert _launches(run, device, inputs) == SITES + more


def test_replay_finds_what_was_written_past_autograd_when_weights_are_checked(
    device: NpuDevice,
) -> None:
    torch.compiler.reset()
    model, inputs = Layers(torch.bfloat16), _inputs(torch.bfloat16)
    with torch.no_grad():
        run = _full(model, device, inputs)
        _scale_of(model, 0).data.mul_(0.25)
        run.compiled.check_weights()

        _assert_close(run(*inputs), model(*inputs))
