"""Captures that the device refuses: the break that somebody forgot is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import cann_sim
from field_failures.field_failure import Failing, field_failure, told
from field_failures.layered_model import CapturedLayers, LayeredModel
from npu_graph_runtime.errors import (
    CaptureStateError,
    DeviceError,
    IllegalWhileCapturingError,
    OutOfDeviceMemoryError,
    OutOfDeviceResourcesError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import NpuDevice
    from npu_graph_runtime.device import DeviceGraph


def _refused(
    device: NpuDevice,
    error: type[DeviceError],
    does: Callable[[torch.Tensor], torch.Tensor],
    layer: int = 1,
) -> Iterator[Failing]:
    """Arrange a capture in one layer of which something is done that cannot be captured."""
    model = LayeredModel(device)
    model.in_layer = lambda index, x: does(x) if index == layer else x
    captured = CapturedLayers(model, warmup_runs=0)
    yield lambda: told(error, captured.capture)
    model.in_layer = lambda _, x: x
    # The device captures again.
    captured.capture()


@field_failure("vllm-ascend#16736", names=("layers.1.qkv", "segment 2", "107027", "'decode'"))
def item_in_a_decode_graph(device: NpuDevice) -> Iterator[Failing]:
    """A scalar is read where a graph is captured."""
    return _refused(device, IllegalWhileCapturingError, lambda x: x * x.sum().item())


@field_failure("vllm-ascend#3963", names=("layers.2.qkv", "segment 3", "107027"))
def shape_that_depends_on_data_in_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """The number of rows is read from the device."""

    def does(x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.argmax()) % 4 + 1]

    return _refused(device, IllegalWhileCapturingError, does, layer=2)


@field_failure("vllm-ascend#2138", names=("layers.0.qkv", "segment 1", "stream"))
def synchronised_stream_in_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """The stream is synchronised after each operator, as blocking launches do."""

    def does(x: torch.Tensor) -> torch.Tensor:
        device.current_stream().synchronize()
        return x

    return _refused(device, IllegalWhileCapturingError, does, layer=0)


@field_failure("vllm-ascend#6002", names=("layers.1.qkv", "segment 2", "1070"))
def blocking_copy_to_the_device_in_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """A copy from host memory that is not pinned is a synchronous one."""

    def does(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(8).to(x.device)

    return _refused(device, IllegalWhileCapturingError, does)


@field_failure("vllm-ascend#10309", names=("layers.1.qkv", "segment 2", "1070"))
def copy_to_the_host_in_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """A state is copied to the host while the draft model is captured."""

    def does(x: torch.Tensor) -> torch.Tensor:
        return x * x.cpu().to(x.device)

    return _refused(device, IllegalWhileCapturingError, does)


@field_failure("vllm-ascend#13792", names=("segment 2", "107025", "not joined"))
def stream_that_is_not_joined(device: NpuDevice) -> Iterator[Failing]:
    """Work of a second stream is still apart where the graph breaks."""
    side = device.create_stream()

    def does(x: torch.Tensor) -> torch.Tensor:
        side.wait_stream(device.current_stream())
        with device.use_stream(side):
            x * 2.0
        return x

    return _refused(device, CaptureStateError, does)


@field_failure("vllm-ascend#9691", "vllm-ascend#3869", names=("segment 3", "'decode'", "207008"))
def no_stream_left_for_a_segment(device: NpuDevice) -> Iterator[Failing]:
    """Each captured piece takes a stream, of which the device has some 2,000."""
    value, pool = torch.ones(1, device=device.torch_device), device.create_memory_pool()
    pieces: list[DeviceGraph] = []

    def takes_streams() -> None:
        while True:
            pieces.append(device.create_graph())
            with device.capture(pieces[-1], pool=pool):
                torch.neg(value)

    told(RuntimeError, takes_streams)
    for piece in pieces[-3:]:
        piece.reset()
    captured = CapturedLayers(LayeredModel(device), warmup_runs=0)
    yield lambda: told(OutOfDeviceResourcesError, captured.capture)
    for piece in pieces:
        piece.reset()


@field_failure("vllm#30515", names=("'decode'", "out of device memory", "capture sizes"))
def no_memory_left_for_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """Memory was profiled without the graphs."""
    model = LayeredModel(device)
    model.in_layer = lambda _, x: x + torch.empty(1 << 22, device=x.device)[:8]
    captured = CapturedLayers(model, warmup_runs=0)

    def fails() -> object:
        device.empty_cache()
        with cann_sim.injected_faults("allocation:1+"):
            return told(OutOfDeviceMemoryError, captured.capture)

    yield fails


@field_failure("sglang#14367", names=("'decode'", "1070"))
def task_group_left_open(device: NpuDevice) -> Iterator[Failing]:
    """The end of the capture is refused, since a task group inside was not ended."""
    model = LayeredModel(device)

    def opens(index: int, x: torch.Tensor) -> torch.Tensor:
        if index == 1 and device.is_capturing():
            device.begin_task_group(device.current_stream())
        return x

    model.in_layer = opens
    captured = CapturedLayers(model, warmup_runs=0)
    yield lambda: told(DeviceError, captured.capture)


@field_failure("vllm-ascend#13688", names=("'decode'", "segment 2", "layers.1.qkv"))
def capture_that_the_device_invalidates(device: NpuDevice) -> Iterator[Failing]:
    """The device rejects the capture when the graph ends."""
    captured = CapturedLayers(LayeredModel(device), warmup_runs=0)

    def fails() -> object:
        with cann_sim.injected_faults("capture_end:2"):
            return told(DeviceError, captured.capture)

    yield fails


FAILURES = (
    item_in_a_decode_graph,
    shape_that_depends_on_data_in_a_graph,
    synchronised_stream_in_a_graph,
    blocking_copy_to_the_device_in_a_graph,
    copy_to_the_host_in_a_graph,
    stream_that_is_not_joined,
    no_stream_left_for_a_segment,
    no_memory_left_for_a_graph,
    task_group_left_open,
    capture_that_the_device_invalidates,
)
