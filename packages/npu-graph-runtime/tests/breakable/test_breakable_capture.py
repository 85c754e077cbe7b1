"""Breakable capture on the fake device and on the real torch_npu over cann-sim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    GraphRuntimeError,
    NpuDevice,
    RunMode,
    SegmentedGraph,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.errors import (
    CaptureSessionError,
    EagerSegmentError,
    IllegalWhileCapturingError,
    InputAddressError,
)

KEY = GraphKey(num_tokens=4)
Capture = Callable[..., GraphedCallable]


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    device: FakeDevice | NpuDevice = request.getfixturevalue(request.param)
    return device


@pytest.fixture
def capture(device: GraphDevice, context: GraphContext) -> Capture:
    """Return a function that captures a callable in segments, with its inputs."""

    def captured(function: Callable[..., Any], *args: Tensor, **options: Any) -> GraphedCallable:
        chosen = {"run_mode": RunMode.BREAKABLE, "name": "model", **options}
        step = GraphedCallable(function, device=device, context=context, **chosen)
        with CaptureSession(device, context), context.run(step.run_mode, KEY):
            step(*args)
        return step

    return captured


def eagerly(context: GraphContext, function: Callable[..., Any]) -> Callable[..., Any]:
    return runs_eagerly(context)(function)


def tensor(device: GraphDevice, *values: float) -> Tensor:
    return torch.tensor(values, device=device.torch_device)


def replayed(step: GraphedCallable, context: GraphContext, *args: Tensor) -> list[float]:
    with context.run(step.run_mode, KEY):
        result: Tensor = step(*args)
    values: list[float] = result.cpu().tolist()
    return values


def test_replay_calls_the_marked_function_between_captured_segments(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    seen: list[list[float]] = []
    host_runs: list[int] = []

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        seen.append(x.cpu().tolist())
        return x * 10

    def model(x: Tensor) -> Any:
        host_runs.append(1)
        return attention(x + 1) + 5

    x = tensor(device, 1.0, 2.0)
    step = capture(model, x)
    seen.clear()
    host_runs.clear()
    for value in (3.0, 4.0):
        x.fill_(value)
        assert replayed(step, context, x) == [(value + 1) * 10 + 5] * 2
    assert seen == [[4.0, 4.0], [5.0, 5.0]]
    assert not host_runs


def test_capturing_call_returns_written_outputs(device: GraphDevice, context: GraphContext) -> None:
    attention = eagerly(context, lambda x: x.cpu().to(x.device) * 3)
    step = GraphedCallable(
        lambda x: attention(x + 1) + 1,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="model",
    )
    x = tensor(device, 2.0)
    with CaptureSession(device, context) as session, context.run(RunMode.BREAKABLE, KEY):
        assert step(x).cpu().tolist() == [10.0]
    assert session.num_graphs == 2


@pytest.mark.parametrize("place", ["first", "last", "alone", "adjacent"])
def test_marked_function_may_be_anywhere(
    device: GraphDevice, context: GraphContext, capture: Capture, place: str
) -> None:
    double = eagerly(context, lambda x: x * 2)

    def model(x: Tensor) -> Any:
        if place in {"first", "alone"}:
            x = double(x)
        if place == "adjacent":
            return double(double(x + 1)) + 1
        if place != "alone":
            x = x + 1
        return double(x) if place == "last" else x

    x = tensor(device, 1.0)
    step = capture(model, x)
    x.fill_(5.0)
    expected = {"first": 11.0, "last": 12.0, "alone": 10.0, "adjacent": 25.0}[place]
    assert replayed(step, context, x) == [expected]


def test_marked_function_inside_another_is_part_of_it(
    device: GraphDevice, context: GraphContext
) -> None:
    inner = eagerly(context, lambda x: x + 1)
    outer = eagerly(context, lambda x: inner(inner(x)) * 2)
    x = tensor(device, 1.0)
    with CaptureSession(device, context) as session:
        captured = session.capture(lambda: outer(x) + 1, subject="'model'", is_breakable=True)
        graph = captured.graph
        assert isinstance(graph, SegmentedGraph)
        assert (graph.num_graphs, graph.num_breaks) == (2, 1)
        x.fill_(4.0)
        graph.replay()
        assert captured.result.cpu().tolist() == [13.0]


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.EAGER])
def test_other_modes_call_the_marked_function_in_place(
    device: GraphDevice, context: GraphContext, mode: RunMode
) -> None:
    calls: list[int] = []

    @runs_eagerly(context)
    def double(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2

    x = tensor(device, 1.0)
    full = GraphedCallable(
        lambda x: double(x) + 1, device=device, context=context, run_mode=RunMode.FULL, name="full"
    )
    with CaptureSession(device, context), context.run(mode, KEY):
        full(x)
    called = len(calls)
    x.fill_(3.0)
    with context.run(mode, KEY):
        assert full(x).cpu().tolist() == [7.0]
    assert len(calls) - called == (mode is RunMode.EAGER)


def test_output_written_in_place_stays_where_it_is(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    @runs_eagerly(context)
    def write(x: Tensor, out: Tensor) -> Tensor:
        out.copy_(x * 2)
        return out[:1]

    out = tensor(device, 0.0, 0.0)
    x = tensor(device, 1.0, 2.0)

    def model(x: Tensor) -> Any:
        part = write(x + 1, out)
        part.add_(100)  # the buffer itself, not a copy of it
        return out + 1

    step = capture(model, x)
    x.copy_(tensor(device, 3.0, 4.0))
    assert replayed(step, context, x) == [109.0, 11.0]
    assert out.cpu().tolist() == [108.0, 10.0]


def test_views_of_one_new_tensor_are_brought_each(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    split = eagerly(context, lambda x: (x * 2).split(2))
    x = tensor(device, 1.0, 2.0, 3.0, 4.0)
    step = capture(lambda x: torch.cat(list(reversed(split(x + 1)))) + 1, x)
    x.copy_(tensor(device, 5.0, 6.0, 7.0, 8.0))
    assert replayed(step, context, x) == [17.0, 19.0, 13.0, 15.0]


def test_results_that_share_memory_at_capture_alone_are_refused(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    shares = [True]

    @runs_eagerly(context)
    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x * 2
        return doubled, doubled if shares[0] else x * 3

    x = tensor(device, 1.0)
    step = capture(lambda x: torch.sub(*pair(x)), x)
    shares[0] = False
    with pytest.raises(EagerSegmentError, match="share memory otherwise than at capture"):
        replayed(step, context, x)


def test_graph_that_was_reset_does_not_replay(device: GraphDevice, context: GraphContext) -> None:
    attention = eagerly(context, torch.neg)
    x = tensor(device, 1.0)
    with CaptureSession(device, context) as session:
        captured = session.capture(lambda: attention(x) + 1, subject="'model'", is_breakable=True)
    captured.graph.reset()
    with pytest.raises(RuntimeError):
        captured.graph.replay()


def test_new_result_with_other_strides_is_brought(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    turned = [False]

    @runs_eagerly(context)
    def rows(x: Tensor) -> Tensor:
        matrix = (x * 2).view(2, 2)
        return matrix.t().contiguous().t() if turned[0] else matrix

    x = tensor(device, 1.0, 2.0, 3.0, 4.0)
    step = capture(lambda x: rows(x).flatten() + 1, x)
    turned[0] = True
    assert replayed(step, context, x) == [3.0, 5.0, 7.0, 9.0]


def test_lazily_negated_view_of_a_buffer_is_another_value(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    number = torch.view_as_complex(torch.tensor([[1.0, 2.0]], device=device.torch_device))
    views = [number.imag, number.conj().imag]
    chosen = [0]
    held = eagerly(context, lambda: views[chosen[0]])
    x = tensor(device, 1.0)
    step = capture(lambda x: x + held(), x)
    assert replayed(step, context, x) == [3.0]
    chosen[0] = 1
    with pytest.raises(EagerSegmentError, match=r"result is a negated tensor .* held elsewhere"):
        replayed(step, context, x)


def test_buffer_referenced_elsewhere_must_be_the_same(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    buffers = [tensor(device, 1.0), tensor(device, 2.0)]
    chosen = [0]
    held = eagerly(context, lambda: buffers[chosen[0]])
    x = tensor(device, 1.0)
    step = capture(lambda x: x + held(), x)
    assert replayed(step, context, x) == [2.0]
    chosen[0] = 1
    with pytest.raises(EagerSegmentError, match=r"result is a tensor .* held elsewhere at capture"):
        replayed(step, context, x)
    # Nothing was written over what somebody else holds.
    assert [buffer.item() for buffer in buffers] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (lambda x: x * 2, lambda x: (x * 2)[:1], "result is a tensor of torch.float32, shape"),
        (lambda x: x * 2, lambda x: (x * 2).half(), "result is a tensor of torch.float16"),
        (lambda x: x * 2, lambda _: None, "result is None, expected a tensor"),
        (lambda x: (x * 2, 3), lambda x: (x * 2, 4), r"result\[1\] is 4, expected 3"),
        (lambda x: (x * 2, 1), lambda x: (x * 2, True), r"result\[1\] is True, expected 1"),
        (lambda x: (x * 2, x * 3), lambda x: (x * 2,), r"it returned result\[0\], expected"),
    ],
)
def test_other_result_than_at_capture_is_refused(
    device: GraphDevice,
    context: GraphContext,
    capture: Capture,
    first: Callable[[Tensor], Any],
    later: Callable[[Tensor], Any],
    message: str,
) -> None:
    functions = [first]

    @runs_eagerly(context)
    def plan(x: Tensor) -> Any:
        return functions[0](x)

    def model(x: Tensor) -> Any:
        result = plan(x)
        return (result[0] if isinstance(result, tuple) else result) + 1

    x = tensor(device, 1.0, 2.0)
    step = capture(model, x)
    functions[0] = later
    with pytest.raises(EagerSegmentError, match=message) as raised:
        replayed(step, context, x)
    assert "plan" in str(raised.value)
    assert "'model' under key" in str(raised.value)


def test_exception_of_the_function_at_capture_leaves_the_session_usable(
    device: GraphDevice, context: GraphContext
) -> None:
    fails = [True]

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        if fails[0]:
            raise LookupError("no page for the token")
        return x * 2

    x = tensor(device, 1.0)
    step = GraphedCallable(
        lambda x: attention(x + 1) + 1,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="model",
        warmup_runs=0,
    )
    with CaptureSession(device, context) as session, context.run(RunMode.BREAKABLE, KEY):
        with pytest.raises(LookupError, match="no page"):
            step(x)
        assert not device.is_capturing()
        assert not step.captured_keys
        assert session.num_graphs == 0
        fails[0] = False
        step(x)
    x.fill_(2.0)
    assert replayed(step, context, x) == [7.0]


def test_exception_that_the_model_catches_is_an_error(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    calls: list[int] = []

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:  # not in the warm-up
            raise LookupError("no page for the token")
        return x

    def model(x: Tensor) -> Any:
        try:
            return attention(x + 1)
        except LookupError:
            return x * 2

    with pytest.raises(CaptureSessionError, match=r"attention.*raised LookupError.*went on"):
        capture(model, tensor(device, 1.0))
    assert not device.is_capturing()


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_exception_at_a_replay_leaves_the_graph_as_good_as_before(
    device: GraphDevice,
    context: GraphContext,
    capture: Capture,
    kind: type[Exception],
) -> None:
    fails = [False]

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        if fails[0]:
            raise kind("no page for the token")
        return x * 2

    x = tensor(device, 1.0)
    step = capture(lambda x: attention(x + 1) + 1, x)
    fails[0] = True
    with pytest.raises(kind, match=r"^no page for the token$") as raised:
        replayed(step, context, x)
    assert not isinstance(raised.value, GraphRuntimeError)
    fails[0] = False
    assert replayed(step, context, x) == [5.0]


def test_forgotten_break_is_named_with_its_segment(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    attention = eagerly(context, torch.neg)
    capturing = [False]

    def model(x: Tensor) -> Any:
        y = attention(x + 1)
        return y * y.sum().item() if capturing[0] else y

    x = tensor(device, 1.0)
    model(x)
    capturing[0] = True
    with pytest.raises(IllegalWhileCapturingError, match=r"segment 2 \(behind neg\) of 'model'"):
        capture(model, x, warmup_runs=0)
    capturing[0] = False
    step = capture(model, x)
    assert replayed(step, context, x) == [-2.0]


def test_named_work_names_its_segment_while_it_is_captured(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    attention = eagerly(context, lambda x, layer: x + len(layer))
    capturing = [False]

    @runs_captured(context, "layers.1.mlp")
    def mlp(x: Tensor) -> Any:
        return x * x.sum().item() if capturing[0] else x * 2

    x = tensor(device, 1.0)
    capturing[0] = True
    with pytest.raises(IllegalWhileCapturingError, match=r"segment 2 \(layers\.1\.mlp\) of"):
        capture(lambda x: mlp(attention(x + 1, "layers.0")), x, warmup_runs=0)
    capturing[0] = False
    step = capture(lambda x: mlp(attention(x + 1, "layers.0")), x)
    assert replayed(step, context, x) == [20.0]


def test_segments_of_a_replay_are_named_by_adjacent_layers(
    npu: NpuDevice, context: GraphContext
) -> None:
    def attend(x: Tensor, layer: str) -> Tensor:
        del layer
        return x + 1

    attention = runs_eagerly(context)(attend)
    step = GraphedCallable(
        lambda x: attention(attention(x, "layers.0") * 2, "layers.1") * 3,
        device=npu,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="model",
    )
    x = tensor(npu, 1.0)
    with CaptureSession(npu, context), context.run(RunMode.BREAKABLE, KEY):
        step(x)

    graph = step.graph_of(KEY)

    assert isinstance(graph, SegmentedGraph)
    assert [getattr(each, "name", str(each)) for each in graph.segments] == [
        "segment 1 (before attend('layers.0'))",
        "attend('layers.0')",
        "segment 2 (between attend('layers.0') and attend('layers.1'))",
        "attend('layers.1')",
        "segment 3 (behind attend('layers.1'))",
    ]


def test_work_of_another_stream_joins_before_the_function(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    side = device.create_stream()
    attention = eagerly(context, lambda x, y: x + y)

    def model(x: Tensor) -> Any:
        main = device.current_stream()
        side.wait_stream(main)
        with device.use_stream(side):
            y = x * 10
        z = x + 1
        main.wait_stream(side)
        result: Tensor = attention(z, y) * 2
        return result

    x = tensor(device, 1.0)
    step = capture(model, x)
    x.fill_(2.0)
    assert replayed(step, context, x) == [46.0]


def test_stream_that_does_not_join_before_the_function_is_refused(
    npu: NpuDevice, context: GraphContext
) -> None:
    side = npu.create_stream()
    attention = eagerly(context, lambda x: x + 1)

    def model(x: Tensor) -> Any:
        side.wait_stream(npu.current_stream())
        with npu.use_stream(side):
            y = x * 10
        result: Tensor = attention(x)
        return result + y

    step = GraphedCallable(
        model, device=npu, context=context, run_mode=RunMode.BREAKABLE, name="model", warmup_runs=0
    )
    x = tensor(npu, 1.0)
    with (
        CaptureSession(npu, context),
        context.run(RunMode.BREAKABLE, KEY),
        pytest.raises(GraphRuntimeError, match=r"segment 1 \(before <lambda>\) of 'model'"),
    ):
        step(x)
    assert not npu.is_capturing()


def test_inputs_of_a_segmented_graph_are_compared_like_others(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    attention = eagerly(context, torch.neg)
    x = tensor(device, 1.0)
    step = capture(lambda x: attention(x + 1), x)
    with pytest.raises(InputAddressError, match=r"args\[0\]"):
        replayed(step, context, tensor(device, 1.0))


def test_released_graph_is_captured_again(
    device: GraphDevice, context: GraphContext, capture: Capture
) -> None:
    attention = eagerly(context, lambda x: (x * 2, x * 3))
    x = tensor(device, 1.0)
    step = capture(lambda x: sum(attention(x + 1)), x)
    step.release(KEY)
    assert not step.captured_keys
    with CaptureSession(device, context), context.run(RunMode.BREAKABLE, KEY):
        step(x)
    x.fill_(3.0)
    assert replayed(step, context, x) == [20.0]


def test_released_graph_frees_results_of_eager_functions(
    npu: NpuDevice, context: GraphContext, capture: Capture
) -> None:
    megabytes = 1 << 20
    wide = eagerly(context, lambda x: x.expand(4 * megabytes).contiguous())
    x = tensor(npu, 1.0)
    step = capture(lambda x: wide(x + 1)[:1] + 1, x)
    held = npu.memory_figures().allocated
    step.release(KEY)
    assert npu.memory_figures().allocated <= held - 16 * megabytes


def test_graphs_of_several_sizes_share_a_pool(device: GraphDevice, context: GraphContext) -> None:
    seen: list[int] = []

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        seen.append(x.shape[0])
        return x.cumsum(0)

    tokens = torch.zeros(8, device=device.torch_device)
    step = GraphedCallable(
        lambda n: attention(tokens[:n] + 1) * 2,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="model",
    )
    sizes = (8, 4, 2)
    with CaptureSession(device, context):
        for size in sizes:
            with context.run(RunMode.BREAKABLE, GraphKey(num_tokens=size)):
                step(size)
    seen.clear()
    for size in (*sizes, *reversed(sizes)):
        tokens.fill_(float(size))
        with context.run(RunMode.BREAKABLE, GraphKey(num_tokens=size)):
            found = step(size).cpu()
        assert found.tolist() == [2 * (size + 1) * (index + 1) for index in range(size)]
    assert seen == [8, 4, 2, 2, 4, 8]


def test_sixty_two_segments_replay_as_one(device: GraphDevice, context: GraphContext) -> None:
    breaks = 61
    attention = eagerly(context, lambda x, layer: x * 0.5 + layer)

    def model(x: Tensor) -> Any:
        for layer in range(breaks):
            x = attention(x + 1, layer)
        return x + 1

    x = tensor(device, 1.0, -1.0)
    with CaptureSession(device, context) as session:
        captured = session.capture(lambda: model(x), subject="'model'", is_breakable=True)
        graph = captured.graph
        assert isinstance(graph, SegmentedGraph)
        assert (graph.num_graphs, graph.num_breaks) == (breaks + 1, breaks)
        assert session.num_graphs == breaks + 1
        for value in (3.0, 7.0):
            x.fill_(value)
            graph.replay()
            assert torch.equal(captured.result.cpu(), model(x).cpu())


MODES = {
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "grad": torch.enable_grad,
}


@pytest.mark.parametrize("at_replay", MODES)
@pytest.mark.parametrize("at_capture", MODES)
def test_replay_in_another_grad_mode_than_the_capture(
    device: GraphDevice, context: GraphContext, capture: Capture, at_capture: str, at_replay: str
) -> None:
    """Eager functions that return memory, write their arguments, and read parameters."""
    weight = torch.nn.Parameter(tensor(device, 2.0, 3.0))
    total = tensor(device, 0.0, 0.0)

    @runs_eagerly(context)
    def returning(x: Tensor) -> Tensor:
        return (x * weight).view(1, 2)

    @runs_eagerly(context)
    def writing(x: Tensor, out: Tensor) -> None:
        out.copy_(x[0] * weight)
        total.copy_(x[0] * weight)

    def model(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        writing(returning(x + 1) + 1, out)
        return out * 2

    x = tensor(device, 0.0, 0.0)
    with MODES[at_capture]():
        step = capture(model, x)
    for value in (1.0, 5.0):
        with torch.no_grad():
            x.fill_(value)
        with MODES[at_replay]():
            found = replayed(step, context, x)
        with torch.no_grad():
            expected = model(x)
        assert found == expected.tolist()
        if at_capture != "grad":
            assert total.grad_fn is None
