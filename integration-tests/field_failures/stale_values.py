"""Values fixed at capture that changed later: weights, inputs, host values, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from field_failures.field_failure import Failing, field_failure, told
from field_failures.layered_model import KEY, LAYERS, TOKENS, WIDTH, CapturedLayers, LayeredModel
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import (
    EagerSegmentError,
    GraphNotCapturedError,
    InputAddressError,
    KeptMemoryError,
    ReplacedWeightError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice


def _parameter(value: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)


@field_failure("vllm-ascend#7473", names=("segment 2 (layers.1.qkv)", "differed", "in the graph"))
def derived_weight_made_anew(device: NpuDevice) -> Iterator[Failing]:
    """Weights derived from others after loading have new addresses after an update of weights."""
    absorbed = [torch.eye(WIDTH, device=device.torch_device) for _ in range(LAYERS)]
    model = LayeredModel(device)
    model.in_layer = lambda index, x: x @ absorbed[index]
    captured = CapturedLayers(model).capture()
    kept = absorbed[1]
    absorbed[1] = kept * 1.5
    yield captured.difference
    assert kept is not absorbed[1]


@field_failure("sglang#4961", names=("'decode'", "layers.1", "expected a tensor of"))
def weight_of_which_the_old_memory_is_kept(device: NpuDevice) -> Iterator[Failing]:
    """Loading weights into a running engine assigns new tensors."""
    model = LayeredModel(device)
    captured = CapturedLayers(model).capture()
    kept = model.layers[1]
    model.layers[1] = _parameter(kept * 2.0)
    yield lambda: told(ReplacedWeightError, captured.graphed.check_weights)
    model.layers[1] = kept


@field_failure("sglang#11780", names=("'decode'", "layers.2", "capture it again"))
def weight_of_which_the_old_memory_is_freed(device: NpuDevice) -> Iterator[Failing]:
    """The replay after an update of weights reads memory that now has another owner."""
    model = LayeredModel(device)
    captured = CapturedLayers(model).capture()
    captured.step_and_wait()
    model.layers[2] = _parameter(model.layers[2] * 2.0)
    yield lambda: told(ReplacedWeightError, captured.step)


@field_failure("vllm-ascend#11548", "vllm-ascend#12226", names=("layers.0", "stride"))
def weight_that_was_transposed_once_more(device: NpuDevice) -> Iterator[Failing]:
    """Waking up changes the layout of the experts' weights."""
    model = LayeredModel(device)
    captured = CapturedLayers(model).capture()
    weight = model.layers[0]
    model.layers[0] = _parameter(weight.data.t())
    yield lambda: told(ReplacedWeightError, captured.graphed.check_weights)


@field_failure("vllm#48941", "vllm#29341", names=("segment 1 (layers.0.qkv)", "differed"))
def all_weights_loaded_anew(device: NpuDevice) -> Iterator[Failing]:
    """The graph still reads the old weights, and nothing reports it."""
    model = LayeredModel(device)
    captured = CapturedLayers(model).capture()
    kept = [*model.layers]
    for index, weight in enumerate(kept):
        model.layers[index] = _parameter(weight + 1.0)
    yield captured.difference
    assert len(kept) == LAYERS


@field_failure("sglang#27140", names=("segment 3 (layers.2.qkv)", "differed", "result"))
def recurrent_state_moved(device: NpuDevice) -> Iterator[Failing]:
    """States of linear attention come back elsewhere after memory was released and resumed."""
    states = {2: torch.ones(TOKENS, WIDTH, device=device.torch_device)}
    model = LayeredModel(device)
    model.in_layer = lambda index, x: x + states[index] if index in states else x
    captured = CapturedLayers(model).capture()
    kept = states[2]
    states[2] = torch.full_like(kept, 3.0)
    yield captured.difference
    assert kept is not states[2]


@field_failure("vllm-ascend#6258", names=("stale_values.py:", "kept as in_layer.load[0]"))
def counter_that_is_assigned_instead_of_written(device: NpuDevice) -> Iterator[Failing]:
    """A load of experts is summed with a plus that makes a new tensor each time."""
    load = [torch.zeros(TOKENS, 1, device=device.torch_device)]
    model = LayeredModel(device)

    def counts(index: int, x: torch.Tensor) -> torch.Tensor:
        if index == 1:
            load[0] = load[0] + x.sum(1, keepdim=True)
            return x + load[0]
        return x

    model.in_layer = counts
    captured = CapturedLayers(model)
    yield lambda: told(KeptMemoryError, captured.capture)


@field_failure("vllm#42444", names=("segment 1 (layers.0.qkv)", "differed"))
def plan_made_while_warming_up(device: NpuDevice) -> Iterator[Failing]:
    """A value made only at the first call of a step is not in the graph, but the old value is."""
    plans: dict[str, torch.Tensor] = {}
    lengths = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device.torch_device)[:, None]
    model = LayeredModel(device)

    def planned(_: int, x: torch.Tensor) -> torch.Tensor:
        if "plan" not in plans:
            plans["plan"] = lengths * 2.0
        return x * plans["plan"]

    model.in_layer = planned
    captured = CapturedLayers(model).capture()
    kept = plans.pop("plan")
    lengths.fill_(5.0)
    yield captured.difference
    assert kept.shape == lengths.shape


@field_failure("vllm#40961", names=("segment 2 (layers.1.qkv)", "differed"))
def branch_taken_by_the_length_of_the_capture(device: NpuDevice) -> Iterator[Failing]:
    """The kernel of a layer is chosen by a length that is 1 when graphs are captured."""
    longest = [1]
    model = LayeredModel(device)

    def chosen(index: int, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0) if index == 1 and longest[0] > 2 else x

    model.in_layer = chosen
    captured = CapturedLayers(model).capture()
    longest[0] = 3
    yield captured.difference


@field_failure("vllm-ascend#3444", "vllm#19106", names=("segment 3 (layers.2.qkv)", "differed"))
def lengths_of_the_host_inside_a_graph(device: NpuDevice) -> Iterator[Failing]:
    """Attention is captured with the lengths of the capture, and nobody updates it."""
    model = LayeredModel(device)

    def attends(index: int, x: torch.Tensor) -> torch.Tensor:
        return x + x[: model.lengths[index]].mean(0, keepdim=True) if index == 2 else x

    model.in_layer = attends
    captured = CapturedLayers(model).capture()
    model.lengths[2] = 2
    yield captured.difference


@field_failure("vllm#53915", names=("'piece_4 (layers.2.mlp)'", "args[0]", "expected"))
def piece_whose_input_lies_elsewhere(device: NpuDevice) -> Iterator[Failing]:
    """An eager function before a piece returns a new tensor each time."""
    context = GraphContext()
    piece = GraphedCallable(
        torch.neg,
        device=device,
        context=context,
        run_mode=RunMode.PIECEWISE,
        name="piece_4 (layers.2.mlp)",
    )

    def step(value: torch.Tensor) -> object:
        with context.run(RunMode.PIECEWISE, KEY):
            return piece(value)

    first = torch.ones(TOKENS, device=device.torch_device)
    with CaptureSession(device, context):
        step(first)
    yield lambda: told(
        InputAddressError, lambda: step(torch.ones(TOKENS, device=device.torch_device))
    )


@field_failure("sglang#22778", names=("'decode'", "block_table", "(4, 3)", "(4, 2)"))
def block_table_wider_than_captured(device: NpuDevice) -> Iterator[Failing]:
    """Draft tokens need a block more than the table of the graph has."""
    context = GraphContext()
    decode = GraphedCallable(
        lambda x, block_table: x + block_table.sum(1, keepdim=True),
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="decode",
    )
    x = torch.ones(TOKENS, WIDTH, device=device.torch_device)
    table = torch.zeros(TOKENS, 3, device=device.torch_device)

    def step(width: int) -> object:
        with context.run(RunMode.FULL, KEY):
            return decode(x, block_table=table[:, :width])

    with CaptureSession(device, context):
        step(2)
    yield lambda: told(InputAddressError, lambda: step(3))


@field_failure("vllm#32005", names=("'decode'", "num_active_loras", "captured keys"))
def graph_of_another_number_of_adapters(device: NpuDevice) -> Iterator[Failing]:
    """A batch with two adapters finds the graph of one that has as many tokens."""
    captured = CapturedLayers(LayeredModel(device)).capture()

    def step() -> object:
        key = GraphKey(num_tokens=TOKENS, num_active_loras=2)
        with captured.model.context.run(RunMode.BREAKABLE, key):
            return captured.graphed(captured.model.hidden)

    yield lambda: told(GraphNotCapturedError, step)


@field_failure("sglang#37606", names=("attend('layers.5')", "'prefill'", "result"))
def eager_result_in_memory_of_somebody_else(device: NpuDevice) -> Iterator[Failing]:
    """Only the graph refers to the value that an eager function passes to the next segment."""
    context = GraphContext()
    buffers = [torch.ones(TOKENS, device=device.torch_device)]

    def attend(x: torch.Tensor, layer: str) -> torch.Tensor:
        del layer
        return buffers[0].copy_(x)

    attention = runs_eagerly(context)(attend)
    prefill = GraphedCallable(
        lambda x: attention(x * 2.0, "layers.5") + 1.0,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="prefill",
    )
    x = torch.ones(TOKENS, device=device.torch_device)

    def step() -> object:
        with context.run(RunMode.BREAKABLE, KEY):
            return prefill(x)

    with CaptureSession(device, context):
        step()
    kept = buffers[0]
    buffers[0] = torch.zeros_like(kept)
    yield lambda: told(EagerSegmentError, step)
    assert kept is not buffers[0]


FAILURES = (
    derived_weight_made_anew,
    weight_of_which_the_old_memory_is_kept,
    weight_of_which_the_old_memory_is_freed,
    weight_that_was_transposed_once_more,
    all_weights_loaded_anew,
    recurrent_state_moved,
    counter_that_is_assigned_instead_of_written,
    plan_made_while_warming_up,
    branch_taken_by_the_length_of_the_capture,
    lengths_of_the_host_inside_a_graph,
    piece_whose_input_lies_elsewhere,
    block_table_wider_than_captured,
    graph_of_another_number_of_adapters,
    eager_result_in_memory_of_somebody_else,
)
