"""Kernels that fail in a replay or beside one: segment, operator and stream are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import cann_sim
from field_failures.field_failure import Failing, field_failure
from field_failures.layered_model import LAYERS, TOKENS, CapturedLayers, LayeredModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import NpuDevice


def _fails(captured: CapturedLayers, faults: str) -> Iterator[Failing]:
    """Make a kernel fail in a compared step."""

    def fails() -> object:
        with cann_sim.injected_faults(faults):
            return captured.difference()

    yield fails
    # The device works again.
    captured.step_and_wait()


def _with(
    device: NpuDevice, in_layer: Callable[[int, torch.Tensor], torch.Tensor]
) -> CapturedLayers:
    model = LayeredModel(device)
    model.in_layer = in_layer
    return CapturedLayers(model).capture()


@field_failure("vllm-ascend#16654", names=("segment 2 (layers.1.qkv)", "captured run", "aclnnRelu"))
def kernel_that_fails_in_a_replay(device: NpuDevice) -> Iterator[Failing]:
    """After hours a kernel of the decode graph raises an exception."""
    # Each layer runs it once eagerly and once in its segment.
    return _fails(_with(device, lambda _, x: torch.relu(x)), "run(aclnnRelu):4")


@field_failure("vllm-ascend#11514", names=("segment 3 (layers.2.qkv)", "507011", "ScatterNdUpdate"))
def scatter_that_fails_in_a_replay(device: NpuDevice) -> Iterator[Failing]:
    """A write of indexed rows fails on all ranks once a batch is larger."""
    rows = torch.arange(TOKENS, device=device.torch_device)[:, None]
    target = torch.zeros(TOKENS, 8, device=device.torch_device)

    def scatters(_: int, x: torch.Tensor) -> torch.Tensor:
        scattered: torch.Tensor = torch.ops.npu.npu_scatter_nd_update(target, rows, x)
        return x + scattered

    return _fails(_with(device, scatters), "run(aclnnScatterNdUpdate):6")


@field_failure("vllm-ascend#2349", names=("attention('layers.1.attention')", "507015", "Sigmoid"))
def kernel_that_fails_beside_the_graph(device: NpuDevice) -> Iterator[Failing]:
    """The error appears when the sampled tokens are read, long after the kernel."""
    model = LayeredModel(device)
    model.in_attention = lambda _, x: torch.sigmoid(x)
    return _fails(CapturedLayers(model).capture(), "run(aclnnSigmoid):3")


@field_failure("vllm-ascend#8502", names=("segment 2 (layers.1.qkv)", "stream", "aclnnTanh"))
def kernel_of_a_second_stream_that_fails(device: NpuDevice) -> Iterator[Failing]:
    """Shared experts run on a stream of their own inside of the graph."""
    side = device.create_stream()

    def forks(_: int, x: torch.Tensor) -> torch.Tensor:
        main = device.current_stream()
        side.wait_stream(main)
        with device.use_stream(side):
            shared = torch.tanh(x)
        main.wait_stream(side)
        return x + shared

    return _fails(_with(device, forks), "run(aclnnTanh):4")


@field_failure("sglang#24401", names=("segment 1 (layers.0.qkv)", "eager run", "Embedding"))
def position_beyond_the_table(device: NpuDevice) -> Iterator[Failing]:
    """The rows of the padding keep the positions of an earlier, larger batch."""
    table = torch.randn(16, 8, device=device.torch_device)
    positions = torch.zeros(TOKENS, dtype=torch.int64, device=device.torch_device)
    captured = _with(device, lambda _, x: x + torch.nn.functional.embedding(positions, table))
    positions[-1] = 1_000_000
    yield captured.difference
    cann_sim.restart_devices()
    positions.zero_()
    captured.step_and_wait()


@field_failure("vllm-ascend#10700", names=("segment 3", "507011", "captured run", "aclnnExp"))
def kernel_of_the_last_layer_that_fails(device: NpuDevice) -> Iterator[Failing]:
    """A graph that ran for days ends with an address out of range."""
    captured = _with(device, lambda index, x: torch.exp(x) if index == LAYERS - 1 else x)
    return _fails(captured, "run(aclnnExp):2")


FAILURES = (
    kernel_that_fails_in_a_replay,
    scatter_that_fails_in_a_replay,
    kernel_that_fails_beside_the_graph,
    kernel_of_a_second_stream_that_fails,
    position_beyond_the_table,
    kernel_of_the_last_layer_that_fails,
)
