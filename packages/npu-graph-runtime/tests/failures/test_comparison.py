"""A step is run eagerly and by its graphs; the first segment in which they part is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import cann_sim
from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import DifferenceKind, Side, find_first_difference
from npu_graph_runtime.errors import (
    DeviceTimeoutError,
    GraphNotCapturedError,
    InputAddressError,
    KernelError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

KEY = GraphKey(num_tokens=4)


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    chosen: GraphDevice = request.getfixturevalue(request.param)
    return chosen


def _captured(
    function: Callable[..., Any],
    device: GraphDevice,
    context: GraphContext,
    run_mode: RunMode,
    *args: Tensor,
    name: str = "model",
    **options: Any,
) -> tuple[GraphedCallable, Callable[[], object]]:
    """Capture a callable, and return it with a function that calls it."""
    graphed = GraphedCallable(
        function, device=device, context=context, run_mode=run_mode, name=name, **options
    )

    def call() -> object:
        with context.run(run_mode, KEY):
            return graphed(*args)

    with CaptureSession(device, context):
        call()
    return graphed, call


class _Layers:
    """Three layers: work that is captured, and an attention that runs eagerly and keeps state."""

    def __init__(self, device: GraphDevice, context: GraphContext) -> None:
        where = device.torch_device
        self.scales = [2.0, 3.0, 4.0]
        self.lengths = [2, 2, 2]
        self.caches = [torch.zeros(4, 8, device=where) for _ in range(3)]
        self.weights = [torch.eye(8, device=where) for _ in range(3)]
        self._attention = runs_eagerly(context)(self._attend)
        self._projections = [
            runs_captured(context, f"layers.{index}.mlp")(self._project) for index in range(3)
        ]

    def _project(self, x: Tensor, index: int) -> tuple[Tensor, Tensor]:
        return (x @ self.weights[index]) * self.scales[index], torch.empty_like(x)

    def _attend(self, x: Tensor, out: Tensor, layer: str) -> None:
        index = int(layer.rpartition(".")[2])
        self.caches[index] += x
        out.copy_(self.caches[index])
        out[self.lengths[index] :] = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        for index in range(3):
            hidden, out = self._projections[index](x, index)
            self._attention(hidden, out, f"layers.{index}")
            x = x + out
        return x + 1.0

    @property
    def written(self) -> dict[str, Tensor]:
        return {f"caches.{index}": cache for index, cache in enumerate(self.caches)}


def _captured_layers(
    device: GraphDevice, context: GraphContext
) -> tuple[_Layers, GraphedCallable, Callable[[], object]]:
    layers = _Layers(device, context)
    hidden = torch.rand(4, 8).to(device.torch_device)
    return layers, *_captured(layers, device, context, RunMode.BREAKABLE, hidden)


def test_a_good_graph_differs_nowhere_and_the_state_is_that_of_one_step(
    device: GraphDevice, context: GraphContext
) -> None:
    layers, graphed, call = _captured_layers(device, context)
    before = [cache.clone() for cache in layers.caches]
    call()
    after_one = [cache.clone() for cache in layers.caches]
    for cache, value in zip(layers.caches, before, strict=True):
        cache.copy_(value)

    assert find_first_difference(call, [graphed], written=layers.written) is None

    for cache, value in zip(layers.caches, after_one, strict=True):
        assert torch.equal(cache, value)
    assert graphed.captured_keys == (KEY,)
    assert context.capture_session is None


def test_undeclared_state_is_a_difference_of_the_function_that_writes_it(
    device: GraphDevice, context: GraphContext
) -> None:
    _, graphed, call = _captured_layers(device, context)

    found = find_first_difference(call, [graphed])

    assert found is not None
    assert "_attend('layers.0')" in found.place


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_fixed_scalar_that_changed_is_found_in_its_segment(
    layer: int, device: GraphDevice, context: GraphContext
) -> None:
    layers, graphed, call = _captured_layers(device, context)
    layers.scales[layer] = 2.5

    found = find_first_difference(call, [graphed], written=layers.written)

    assert found is not None
    assert found.kind is DifferenceKind.DIFFERED
    assert found.place.startswith(f"segment {layer + 1} (layers.{layer}.mlp) of 'model' under key")
    assert found.value == f"layers.{layer}.mlp: result[0]"
    assert found.index == (0, 0)
    assert found.num_different == 32
    assert isinstance(found.captured, float)
    assert isinstance(found.eager, float)
    assert found.captured * 2.5 == pytest.approx(found.eager * (2.0 + layer), rel=1e-5)


def test_a_replaced_weight_whose_old_memory_is_kept_is_found(
    device: GraphDevice, context: GraphContext
) -> None:
    layers, graphed, call = _captured_layers(device, context)
    old = layers.weights[1]
    layers.weights[1] = old * 2.0

    found = find_first_difference(call, [graphed], written=layers.written)

    assert found is not None
    assert "segment 2 (layers.1.mlp)" in found.place
    assert old is not layers.weights[1]


def test_nan_is_named_at_its_origin(device: GraphDevice, context: GraphContext) -> None:
    layers, graphed, call = _captured_layers(device, context)
    layers.weights[2][3, 5] = float("nan")

    found = find_first_difference(call, [graphed], written=layers.written)

    assert found is not None
    assert found.kind is DifferenceKind.NAN
    assert "segment 3 (layers.2.mlp)" in found.place
    assert found.index is not None
    assert found.index[1] == 5


def test_an_eager_function_that_differs_is_named(
    device: GraphDevice, context: GraphContext
) -> None:
    """The graph calls it with the arguments of the capture, one of which is fixed."""
    scale = [1.0]

    @runs_eagerly(context)
    def attention(x: Tensor, factor: float, layer: str) -> Tensor:
        del layer
        return x * factor

    def model(x: Tensor) -> Tensor:
        return attention(x + 1.0, scale[0], "layers.7") * 2.0

    hidden = torch.ones(4, 8, device=device.torch_device)
    graphed, call = _captured(model, device, context, RunMode.BREAKABLE, hidden)
    scale[0] = 3.0

    found = find_first_difference(call, [graphed])

    assert found is not None
    assert "attention('layers.7')" in str(found)
    assert found.captured == "1.0"
    assert found.eager == "3.0"


def test_a_break_that_is_not_there_any_more_is_named(
    device: GraphDevice, context: GraphContext
) -> None:
    skipped: list[int] = []

    @runs_eagerly(context)
    def attention(x: Tensor, layer: str) -> Tensor:
        del layer
        return x * 2.0

    def model(x: Tensor) -> Tensor:
        for index in range(2):
            if index not in skipped:
                x = attention(x + 1.0, f"layers.{index}")
        return x

    hidden = torch.ones(4, 8, device=device.torch_device)
    graphed, call = _captured(model, device, context, RunMode.BREAKABLE, hidden)
    skipped.append(1)

    found = find_first_difference(call, [graphed])

    assert found is not None
    assert found.captured == "attention('layers.1')"
    assert found.eager == "nothing"


def test_a_tolerated_difference_is_not_carried_on(
    device: GraphDevice, context: GraphContext
) -> None:
    """Each segment is off by a little, and none by more than its own share."""
    layers, graphed, call = _captured_layers(device, context)
    layers.scales = [scale * (1 + 1e-4) for scale in layers.scales]

    exact = find_first_difference(call, [graphed], written=layers.written)
    near = find_first_difference(call, [graphed], written=layers.written, rtol=2e-4, atol=1e-6)

    assert exact is not None
    assert near is None


def test_rows_of_the_padding_are_left_out(device: GraphDevice, context: GraphContext) -> None:
    layers, graphed, call = _captured_layers(device, context)
    layers.weights[0] = layers.weights[0].clone()
    padding = torch.ones(4, 1, device=device.torch_device)

    def model(x: Tensor) -> Tensor:
        return x * padding

    hidden = torch.ones(4, 8, device=device.torch_device)
    graphed, call = _captured(model, device, context, RunMode.FULL, hidden)
    padding = padding.clone()
    padding[3] = 7.0

    found = find_first_difference(call, [graphed])

    assert found is not None
    assert found.index == (3, 0)
    assert find_first_difference(call, [graphed], num_tokens=3) is None


def _pieces(
    device: GraphDevice, context: GraphContext
) -> tuple[list[GraphedCallable], Callable[[], object], list[Tensor]]:
    """Captured pieces with an operator between them that runs eagerly, as a splitter makes them."""
    where = device.torch_device
    weights = [torch.full((8,), 2.0 + index, device=where) for index in range(3)]
    buffer = torch.zeros(4, 8, device=where)
    hidden = torch.ones(4, 8, device=where)

    def piece(index: int) -> GraphedCallable:
        def forward(x: Tensor) -> tuple[Tensor]:
            x.mul_(weights[index])
            return (x + 1.0,)

        return GraphedCallable(
            forward,
            device=device,
            context=context,
            run_mode=RunMode.PIECEWISE,
            name=f"piece_{index} (layers.{index}.mlp)",
            address_check=AddressCheck.ALWAYS,
        )

    pieces = [piece(index) for index in range(3)]

    def call() -> object:
        with context.run(RunMode.PIECEWISE, KEY):
            x = hidden
            for each in pieces:
                (out,) = each(x)
                x = buffer
                x.copy_(out)
            return x

    with CaptureSession(device, context):
        call()
    hidden.fill_(1.0)
    return pieces, call, weights


def test_pieces_that_write_their_arguments_agree(
    device: GraphDevice, context: GraphContext
) -> None:
    pieces, call, _ = _pieces(device, context)

    assert find_first_difference(call, pieces) is None
    assert [piece.captured_keys for piece in pieces] == [(KEY,)] * 3


def test_the_first_piece_that_differs_is_named(device: GraphDevice, context: GraphContext) -> None:
    pieces, call, weights = _pieces(device, context)
    kept = list(weights)
    weights[1] = kept[1] * 2.0
    weights[2] = kept[2] * 2.0

    found = find_first_difference(call, pieces)

    assert found is not None
    assert found.place == "'piece_1 (layers.1.mlp)' under key (num_tokens=4)"
    assert found.value == "result[0]"


def test_an_input_elsewhere_and_a_key_that_is_not_captured_are_errors(
    device: GraphDevice, context: GraphContext
) -> None:
    where = device.torch_device
    graphed, _ = _captured(
        torch.neg, device, context, RunMode.FULL, torch.ones(4, device=where), name="neg"
    )
    elsewhere = torch.ones(4, device=where)

    def call(key: GraphKey) -> None:
        with context.run(RunMode.FULL, key):
            graphed(elsewhere)

    with pytest.raises(InputAddressError, match="'neg'"):
        find_first_difference(lambda: call(KEY), [graphed])
    with pytest.raises(GraphNotCapturedError, match="comparing 'neg' under key"):
        find_first_difference(lambda: call(GraphKey(num_tokens=1)), [graphed])
    with pytest.raises(ValueError, match="none of the graphed callables was called"):
        find_first_difference(lambda: None, [graphed])
    with pytest.raises(ValueError, match="no graphed callable is given"):
        find_first_difference(lambda: None, [])
    assert graphed.is_captured(KEY)


def test_weights_of_a_module_are_not_copied_and_exceptions_pass(
    device: GraphDevice, context: GraphContext
) -> None:
    module = nn.Linear(8, 8).to(device.torch_device)
    hidden = torch.ones(4, 8, device=device.torch_device)
    with torch.no_grad():
        graphed, call = _captured(module, device, context, RunMode.FULL, hidden)

    def failing() -> None:
        call()
        raise LookupError("of the engine")

    with torch.no_grad():
        assert find_first_difference(call, [graphed]) is None
        with pytest.raises(LookupError, match="of the engine"):
            find_first_difference(failing, [graphed])
        call()
    assert graphed.counters.missed == 0


def test_a_kernel_that_fails_in_a_replay_is_named(npu: NpuDevice, context: GraphContext) -> None:
    layers, graphed, call = _captured_layers(npu, context)

    # The eager run of a layer multiplies once, its replay once: the fourth is the second replay.
    with cann_sim.injected_faults("run(aclnnMuls):4"):
        found = find_first_difference(call, [graphed], written=layers.written)

    assert found is not None
    assert found.kind is DifferenceKind.FAILED
    assert found.side is Side.CAPTURED
    assert "segment 2 (layers.1.mlp)" in found.place
    assert isinstance(found.error, KernelError)
    assert "aclnnMuls" in str(found)


def test_a_kernel_that_fails_eagerly_is_distinguished(
    npu: NpuDevice, context: GraphContext
) -> None:
    layers, graphed, call = _captured_layers(npu, context)

    with cann_sim.injected_faults("run(aclnnMuls):3"):
        found = find_first_difference(call, [graphed], written=layers.written)

    assert found is not None
    assert found.kind is DifferenceKind.FAILED
    assert found.side is Side.EAGER
    assert "segment 2 (layers.1.mlp)" in found.place


def test_a_segment_that_waits_forever_is_named(npu: NpuDevice, context: GraphContext) -> None:
    event = npu.create_external_event()
    hidden = torch.ones(4, 8, device=npu.torch_device)

    @runs_eagerly(context)
    def attention(x: Tensor, layer: str) -> Tensor:
        del layer
        return x * 2.0

    def model(x: Tensor) -> Tensor:
        x = attention(x + 1.0, "layers.0")
        if npu.is_capturing():
            stream = npu.current_stream()
            event.wait(stream)
            event.reset(stream)
        x = attention(x * 3.0, "layers.1")
        return x - 1.0

    updates = npu.create_stream()
    event_of_capture = [True]

    def call() -> object:
        with context.run(RunMode.BREAKABLE, KEY):
            if event_of_capture:
                event.record(updates)
            return graphed(hidden)

    graphed = GraphedCallable(
        model, device=npu, context=context, run_mode=RunMode.BREAKABLE, name="model", warmup_runs=0
    )
    started = 0.0
    try:
        with CaptureSession(npu, context):
            # A breakable capture replays each segment, which waits as well.
            call()
        event_of_capture.clear()
        started = time.perf_counter()
        found = find_first_difference(call, [graphed], seconds=0.5)
        seconds = time.perf_counter() - started
    finally:
        event.record(updates)
        npu.synchronize()

    assert found is not None
    assert found.kind is DifferenceKind.HUNG
    assert "segment 2 (between attention('layers.0') and attention('layers.1'))" in found.place
    assert isinstance(found.error, DeviceTimeoutError)
    assert seconds < 2.0


def test_memory_that_nobody_writes_is_no_difference(
    device: GraphDevice, context: GraphContext
) -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(x)
        out[:2] = x[:2]
        return out, x * 2.0

    hidden = torch.ones(4, 8, device=device.torch_device)
    graphed, call = _captured(model, device, context, RunMode.FULL, hidden)

    assert find_first_difference(call, [graphed]) is None


def test_the_fake_device_reports_what_waits_forever(context: GraphContext) -> None:
    fake = FakeDevice()
    event = fake.create_external_event()
    hidden = torch.ones(4)

    def model(x: Tensor) -> Tensor:
        if fake.is_capturing():
            event.wait(fake.current_stream())
        return x + 1.0

    graphed, call = _captured(model, fake, context, RunMode.FULL, hidden)

    found = find_first_difference(call, [graphed])

    assert found is not None
    assert found.kind is DifferenceKind.HUNG
    assert found.place == "'model' under key (num_tokens=4)"


def test_comparison_does_not_import_dynamo() -> None:
    """It takes seconds, and a failure is to be named at once."""
    program = """
import sys
import cann_sim
cann_sim.activate()
import torch
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphKey,
    GraphedCallable,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import find_first_difference
device, context = NpuDevice(), GraphContext()
attention = runs_eagerly(context)(lambda x: x * 2)
graphed = GraphedCallable(
    lambda x: attention(x + 1) + 1,
    device=device, context=context, run_mode=RunMode.BREAKABLE, name="model",
)
x = torch.ones(4, device=device.torch_device)
with context.run(RunMode.BREAKABLE, GraphKey(num_tokens=4)), torch.no_grad():
    with CaptureSession(device, context):
        graphed(x)
    print(find_first_difference(lambda: graphed(x), [graphed]))
print("torch._dynamo" in sys.modules)
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert run.stdout.split() == ["None", "False"]
