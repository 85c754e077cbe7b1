"""The behaviours that SGLang's, TensorRT-LLM's and Meta's tests of breakable capture check.

The page docs/how-to/breakable-capture.md lists their tests for each one.
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from npu_graph_runtime import (
    Capture,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    SegmentedGraph,
    runs_eagerly,
)
from npu_graph_runtime.errors import CaptureSessionError, EagerSegmentError, GraphNotCapturedError

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = GraphKey(num_tokens=4)


@pytest.fixture(params=["fake", "npu"])
def any_device(request: pytest.FixtureRequest) -> GraphDevice:
    device: FakeDevice | NpuDevice = request.getfixturevalue(request.param)
    return device


@pytest.fixture
def device(npu: NpuDevice) -> GraphDevice:
    return npu


def eagerly(context: GraphContext, function: Callable[..., Any]) -> Callable[..., Any]:
    return runs_eagerly(context)(function)


def captured(
    device: GraphDevice, context: GraphContext, call: Callable[[], Any], warmup_runs: int = 1
) -> tuple[SegmentedGraph, Any]:
    with CaptureSession(device, context) as session:
        capture: Capture = session.capture(
            call, subject="'model'", warmup_runs=warmup_runs, is_breakable=True
        )
    assert isinstance(capture.graph, SegmentedGraph)
    return capture.graph, capture.result


def full(device: GraphDevice, value: float, *shape: int) -> Tensor:
    return torch.full(shape or (4,), value, device=device.torch_device)


def values(tensor: Tensor) -> list[float]:
    read: list[float] = tensor.cpu().flatten().tolist()
    return read


# Memory that an eager function keeps and does not return.


@pytest.fixture(scope="module")
def library() -> Any:
    library: Any = torch.library.Library("breakable_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("keep(Tensor x, int number) -> ()")

    def keep(x: Tensor, number: int) -> None:
        KEPT[number].append(x * 3)

    def keep_nested(x: Tensor, number: int) -> None:
        torch.ops.breakable_test.keep(x, number)

    library.define("keep_nested(Tensor x, int number) -> ()")
    library.impl("keep", keep, "CompositeExplicitAutograd")
    library.impl("keep_nested", keep_nested, "CompositeExplicitAutograd")
    return library


KEPT: dict[int, list[Tensor]] = {}


@pytest.mark.parametrize("way", ["closure", "attribute", "object", "keep", "keep_nested", "reused"])
def test_memory_that_is_kept_and_not_returned_is_refused_where_captured_work_reads_it(
    any_device: GraphDevice, context: GraphContext, library: Any, way: str
) -> None:
    del library
    sink: list[Tensor] = KEPT.setdefault(id(any_device), [])
    state, holder = SimpleNamespace(), {"block": full(any_device, 0.0, 1_000_003)}

    @runs_eagerly(context)
    def attention(x: Tensor) -> Any:
        sink.clear()
        if way == "closure":
            sink.append(x * 3)
        elif way == "attribute":
            state.hidden = x * 3
        elif way.startswith("keep"):
            getattr(torch.ops.breakable_test, way)(x, id(any_device))
        elif way == "reused":
            holder.clear()
            sink.append(full(any_device, 3.0, 1_000_003)[:4])
        return SimpleNamespace(hidden=x * 3) if way == "object" else None

    def model(x: Tensor) -> Any:
        result = attention(x)
        if way == "object":
            return result.hidden + 1
        return (state.hidden if way == "attribute" else sink[0]) + 1

    x = full(any_device, 1.0)
    with pytest.raises(EagerSegmentError, match=r"add.* reads memory that attention made and did"):
        captured(any_device, context, lambda: model(x))
    assert not any_device.is_capturing()
    assert not context.capture_session


def test_kept_memory_is_refused_as_an_argument_and_as_the_result_too(
    any_device: GraphDevice, context: GraphContext
) -> None:
    state = SimpleNamespace()

    @runs_eagerly(context)
    def attention(x: Tensor) -> None:
        state.hidden = x * 3

    @runs_eagerly(context)
    def gate(x: Tensor) -> Tensor:
        return x * 2

    x = full(any_device, 1.0)
    with pytest.raises(EagerSegmentError, match=r"the call of gate reads memory that attention"):
        captured(any_device, context, lambda: (attention(x), gate(state.hidden)))
    with pytest.raises(EagerSegmentError, match=r"the result reads memory that attention"):
        captured(any_device, context, lambda: (attention(x), state.hidden)[1])


def test_memory_that_is_kept_and_that_no_captured_work_reads_is_no_error(
    any_device: GraphDevice, context: GraphContext
) -> None:
    sink: list[Tensor] = []

    @runs_eagerly(context)
    def attention(x: Tensor, out: Tensor) -> None:
        sink.append(x * 3)
        out.copy_(sink[-1])

    @runs_eagerly(context)
    def read() -> Tensor:
        return sink[-1] * 1

    x, out = full(any_device, 1.0), full(any_device, 0.0)
    graph, result = captured(any_device, context, lambda: (attention(x, out), out + read())[1])
    x.fill_(2.0)
    graph.replay()
    assert values(result) == [12.0] * 4


def test_memory_that_was_made_before_the_capture_may_be_read(
    any_device: GraphDevice, context: GraphContext
) -> None:
    made: dict[str, Tensor] = {}

    @runs_eagerly(context)
    def attention(x: Tensor) -> None:
        made.setdefault("workspace", torch.zeros_like(x)).copy_(x * 3)

    x = full(any_device, 1.0)
    graph, result = captured(any_device, context, lambda: (attention(x), made["workspace"] + 1)[1])
    x.fill_(2.0)
    graph.replay()
    assert values(result) == [7.0] * 4


# The positions and kinds of breaks.


def test_without_a_break_a_capture_is_one_segment(
    device: GraphDevice, context: GraphContext
) -> None:
    x, y = full(device, 0.0), full(device, 0.0)
    graph, _ = captured(device, context, lambda: y.copy_(x + 1))
    assert (graph.num_graphs, graph.num_breaks) == (1, 0)
    for value in (5.0, 11.0):
        x.fill_(value)
        graph.replay()
        assert values(y) == [value + 1] * 4


def test_breaks_that_do_nothing_may_be_anywhere(device: GraphDevice, context: GraphContext) -> None:
    @runs_eagerly(context)
    def break_here() -> None:
        pass

    @runs_eagerly(context)
    def triple(x: Tensor) -> None:
        x.mul_(3.0)

    x, buffer = full(device, 2.0), full(device, 0.0)

    def model() -> None:
        break_here()
        break_here()
        buffer.copy_(x)
        break_here()
        triple(buffer)
        break_here()
        buffer.add_(1.0)
        break_here()
        break_here()

    break_here()  # outside a capture it is a call like any other
    graph, _ = captured(device, context, model)
    assert (graph.num_graphs, graph.num_breaks) == (8, 7)
    for value in (2.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert values(buffer) == [value * 3 + 1] * 4


def test_method_that_is_marked_is_called_on_its_object(
    device: GraphDevice, context: GraphContext
) -> None:
    class Scaler:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @runs_eagerly(context)
        def scale(self, x: Tensor) -> None:
            x.mul_(self.factor)

    scaler, x, buffer = Scaler(3.0), full(device, 2.0), full(device, 0.0)

    def model() -> None:
        buffer.copy_(x)
        scaler.scale(buffer)
        buffer.add_(1.0)

    graph, _ = captured(device, context, model)
    x.fill_(5.0)
    scaler.factor = 4.0  # asked at each replay
    graph.replay()
    assert values(buffer) == [21.0] * 4


def test_marked_function_deep_in_the_call_stack_breaks_the_capture(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def leaf(out: Tensor, x: Tensor) -> None:
        out.copy_(x * 3)

    def inner(out: Tensor, x: Tensor) -> None:
        leaf(out, x)
        out.add_(1.0)

    def outer(out: Tensor, x: Tensor) -> Tensor:
        inner(out, x)
        return out * 2

    x, out = full(device, 2.0), full(device, 0.0)
    graph, result = captured(device, context, lambda: outer(out, x))
    x.fill_(5.0)
    graph.replay()
    assert (graph.num_breaks, values(result)) == (1, [32.0] * 4)


def test_products_sums_and_reductions_between_breaks(
    device: GraphDevice, context: GraphContext
) -> None:
    a, b = full(device, 0.5, 8, 8), full(device, 0.25, 8, 8)
    buffer, total = full(device, 0.0, 8, 8), full(device, 0.0, 1)
    scale = eagerly(context, lambda: buffer.mul_(2.0))

    @runs_eagerly(context)
    def reduce() -> None:
        total.copy_(buffer.sum().unsqueeze(0))

    def model() -> Tensor:
        buffer.copy_(a @ b)
        scale()
        buffer.add_(1.0)
        reduce()
        return buffer * 0 + total

    graph, result = captured(device, context, model)
    assert (graph.num_graphs, graph.num_breaks) == (3, 2)
    a.fill_(2.0)
    graph.replay()
    assert values(result) == [(2.0 * 0.25 * 8 * 2 + 1) * 64] * 64


# What an eager function takes and returns.


def test_function_takes_positional_and_keyword_arguments_and_returns_a_number(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def compute(out: Tensor, *parts: Tensor, scale: float, extra: float) -> float:
        out.copy_((parts[0] + parts[1]) * scale)
        return extra * 2.0

    x, out = full(device, 2.0), full(device, 0.0)

    def model() -> float:
        return float(compute(out, x * 2, x * 3, scale=0.5, extra=0.5)) * 3

    graph, result = captured(device, context, model)
    assert result == 3.0
    x.fill_(4.0)
    graph.replay()
    assert values(out) == [10.0] * 4


def test_tensors_of_the_host_and_nested_containers_are_arguments_like_others(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def combine(out: Tensor, tensors: list[Tensor], *, config: dict[str, Tensor]) -> None:
        bias = float(config["bias"])
        out.copy_((tensors[0] + tensors[1]) * config["weight"] + bias)

    a, b, weight = (full(device, value) for value in (1.0, 2.0, 3.0))
    out, bias = full(device, 0.0), torch.tensor(2.0)
    config = {"weight": weight, "bias": bias}
    graph, _ = captured(device, context, lambda: combine(out, [a, b * 1], config=config))
    for first, second, factor, added in ((1.0, 2.0, 3.0, 2.0), (2.0, 5.0, 4.0, 7.0)):
        a.fill_(first)
        b.fill_(second)
        weight.fill_(factor)
        bias.fill_(added)
        graph.replay()
        assert values(out) == [(first + second) * factor + added] * 4


def test_tensor_of_the_host_may_be_returned(device: GraphDevice, context: GraphContext) -> None:
    @runs_eagerly(context)
    def count(x: Tensor) -> Tensor:
        return torch.tensor(float(x.cpu().sum()))

    x = full(device, 1.0)
    graph, result = captured(device, context, lambda: count(x + 1))
    assert (result.device.type, result.item()) == ("cpu", 8.0)
    x.fill_(2.0)
    graph.replay()
    assert result.item() == 12.0


def test_results_in_dicts_are_brought_one_by_one(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def heads(x: Tensor) -> dict[str, Any]:
        return {"query": x * 2, "rest": [x * 3, 5]}

    def model(x: Tensor) -> Any:
        found = heads(x + 1)
        return found["query"] + found["rest"][0] + found["rest"][1]

    x = full(device, 1.0)
    graph, result = captured(device, context, lambda: model(x))
    x.fill_(2.0)
    graph.replay()
    assert values(result) == [20.0] * 4


def test_result_stays_though_nobody_but_the_graph_holds_it(
    npu: NpuDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        return x * 2

    x = full(npu, 1.0, 4096)
    graph, result = captured(npu, context, lambda: attention(x + 1) + 1)
    # If the result's memory were freed, one of these would reuse it.
    others = [full(npu, -999.0, 4096) for _ in range(8)]
    for value in (2.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert values(result) == [(value + 1) * 2 + 1] * 4096
    assert all(values(other) == [-999.0] * 4096 for other in others)


def test_function_reads_the_step_that_is_now(device: GraphDevice, context: GraphContext) -> None:
    step = SimpleNamespace(rows=8, offset=0)
    seen: list[Any] = []

    @runs_eagerly(context)
    def indexer(x: Tensor) -> Tensor:
        seen.append(step)
        out = torch.full_like(x, -1.0)
        out[: step.rows] = x[: step.rows] + step.offset
        return out

    x = full(device, 0.0, 8)
    graph, result = captured(device, context, lambda: indexer(x + 1) * 1)
    for rows, offset in ((3, 17), (8, 4)):
        step = SimpleNamespace(rows=rows, offset=offset)
        x.fill_(2.0)
        graph.replay()
        assert values(result) == [3.0 + offset] * rows + [-1.0] * (8 - rows)
        assert seen[-1] is step


# Memory.


def test_segments_share_the_pool_of_the_session(npu: NpuDevice, context: GraphContext) -> None:
    triple = eagerly(context, lambda x: x.mul_(3.0))
    buffer = full(npu, 1.0)

    def model() -> None:
        for _ in range(2):
            triple(buffer)
            buffer.add_(1.0)

    with CaptureSession(npu, context) as session:
        graph = session.capture(model, subject="'model'", is_breakable=True).graph
    assert isinstance(graph, SegmentedGraph)
    segments: list[Any] = [each for each in graph.segments if hasattr(each, "graph")]
    assert len(segments) == 3
    assert {each.graph.pool() for each in segments} == {session.pool}


def test_two_sequences_share_a_pool(device: GraphDevice, context: GraphContext) -> None:
    double = eagerly(context, lambda x: x.mul_(2.0))
    inputs, buffers = (full(device, 0.0), full(device, 0.0)), (full(device, 0.0), full(device, 0.0))

    def model(index: int) -> None:
        buffers[index].copy_(inputs[index])
        double(buffers[index])
        buffers[index].add_(index + 1.0)

    pool, stream = device.create_memory_pool(), device.create_stream()
    graphs = []
    for index in range(2):
        with CaptureSession(device, context, pool, stream) as session:
            capture = session.capture(
                functools.partial(model, index), subject="'model'", is_breakable=True
            )
            graphs.append(capture.graph)
    for first, second in ((10.0, 20.0), (3.0, 7.0)):
        for tensor, value in zip(inputs, (first, second), strict=True):
            tensor.fill_(value)
        for graph in graphs:
            graph.replay()
        assert values(buffers[0]) == [first * 2 + 1] * 4
        assert values(buffers[1]) == [second * 2 + 2] * 4


def test_pool_is_captured_into_again_when_its_sequence_was_reset(
    device: GraphDevice, context: GraphContext
) -> None:
    triple = eagerly(context, lambda x: x.mul_(3.0))
    x, pool = full(device, 2.0), device.create_memory_pool()
    for last in (1.0, 2.0):
        with CaptureSession(device, context, pool) as session:
            model = functools.partial(lambda last: triple(x * 1) + last, last)
            capture = session.capture(model, subject="'model'", is_breakable=True)
        x.fill_(4.0)
        capture.graph.replay()
        assert values(capture.result) == [12.0 + last] * 4
        capture.graph.reset()


def test_arguments_of_the_capture_are_not_kept(npu: NpuDevice, context: GraphContext) -> None:
    @runs_eagerly(context)
    def increase(x: Tensor) -> None:
        x.add_(1.0)

    victims = [full(npu, 1.0, 1 << 20)]
    graph, _ = captured(npu, context, lambda: increase(victims[0]))
    held = npu.memory_figures().allocated
    victims.clear()
    gc.collect()
    assert npu.memory_figures().allocated <= held - (4 << 20)
    graph.reset()


# Streams.


@pytest.mark.parametrize("joins_by_event", [False, True])
@pytest.mark.parametrize("forks_by_event", [False, True])
def test_stream_that_forks_and_joins_by_streams_or_events(
    device: GraphDevice, context: GraphContext, forks_by_event: bool, joins_by_event: bool
) -> None:
    side = device.create_stream()
    double = eagerly(context, lambda x: x.mul_(2.0))
    x, buffer = full(device, 3.0), full(device, 0.0)

    def order(first: Any, second: Any, by_event: bool) -> None:
        if by_event:
            event = device.create_event()
            event.record(first)
            event.wait(second)
        else:
            second.wait_stream(first)

    def model() -> None:
        main = device.current_stream()
        buffer.copy_(x)
        order(main, side, forks_by_event)
        with device.use_stream(side):
            buffer.add_(1.0)
        order(side, main, joins_by_event)
        double(buffer)
        buffer.add_(10.0)

    graph, _ = captured(device, context, model)
    for value in (3.0, 7.0):
        x.fill_(value)
        graph.replay()
        assert values(buffer) == [(value + 1) * 2 + 10] * 4


@pytest.mark.parametrize("forks_by_event", [False, True])
@pytest.mark.parametrize("at", ["break", "end"])
def test_stream_that_is_not_joined_is_refused_with_its_segment(
    npu: NpuDevice, context: GraphContext, at: str, forks_by_event: bool
) -> None:
    side = npu.create_stream()
    double = eagerly(context, lambda x: x.mul_(2.0))
    buffer = full(npu, 1.0)

    def model() -> None:
        main = npu.current_stream()
        if forks_by_event:
            event = npu.create_event()
            event.record(main)
            event.wait(side)
        else:
            side.wait_stream(main)
        with npu.use_stream(side):
            buffer.add_(1.0)
        if at == "break":
            double(buffer)

    with pytest.raises(RuntimeError, match=r"segment 1.* of 'model'.*join"):
        captured(npu, context, model, warmup_runs=0)
    npu.synchronize()
    graph, _ = captured(npu, context, lambda: double(buffer))  # usable as before
    graph.reset()


# Failures.


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
@pytest.mark.parametrize("place", ["warm-up", "segment", "function"])
def test_exception_anywhere_is_raised_and_state_is_restored(
    device: GraphDevice, context: GraphContext, place: str, kind: type[Exception]
) -> None:
    double = eagerly(context, lambda x: x.mul_(2.0))
    x = full(device, 1.0)

    @runs_eagerly(context)
    def attention(x: Tensor) -> Tensor:
        if place == "function":
            raise kind("no page for the token")
        return x * 2

    def model() -> Any:
        y = attention(x + 1) + 1
        raise kind("no page for the token") from None if place != "function" else ValueError(y)

    warmup_runs = 1 if place == "warm-up" else 0
    with pytest.raises(kind, match=r"^no page for the token$"):
        captured(device, context, model, warmup_runs=warmup_runs)
    assert context.capture_session is None
    assert not device.is_capturing()
    graph, result = captured(device, context, lambda: double(x * 1) + 1)
    x.fill_(5.0)
    graph.replay()
    assert values(result) == [11.0] * 4


def test_capture_that_the_device_refuses_after_a_break_restores_the_state(
    context: GraphContext,
) -> None:
    class Refusing(FakeDevice):
        captures = 0

        def capture(self, *args: Any, **kwargs: Any) -> Any:
            self.captures += 1
            if self.captures == 2:
                raise RuntimeError("no stream is left")
            return super().capture(*args, **kwargs)

    device = Refusing()
    double = eagerly(context, lambda x: x.mul_(2.0))
    x = full(device, 1.0)
    with pytest.raises(RuntimeError, match="no stream is left"):
        captured(device, context, lambda: double(x + 1) + 1, warmup_runs=0)
    assert context.capture_session is None
    assert not device.is_capturing()
    graph, result = captured(device, context, lambda: double(x + 1) + 1)
    x.fill_(5.0)
    graph.replay()
    assert values(result) == [13.0] * 4


def test_capture_inside_a_breakable_one_is_refused(
    device: GraphDevice, context: GraphContext
) -> None:
    x = full(device, 1.0)
    with CaptureSession(device, context) as session:

        def nested() -> None:
            session.capture(lambda: x + 1, subject="'inner'", is_breakable=True)

        with pytest.raises(CaptureSessionError, match="captures do not nest"):
            session.capture(nested, subject="'outer'", is_breakable=True)
    assert not device.is_capturing()


def test_key_that_is_not_captured_is_reported(device: GraphDevice, context: GraphContext) -> None:
    double = eagerly(context, lambda x: x * 2)
    step = GraphedCallable(
        lambda x: double(x) + 1,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="model",
    )
    x = full(device, 1.0)
    with context.run(RunMode.BREAKABLE, KEY), pytest.raises(GraphNotCapturedError, match="'model'"):
        step(x)


def test_code_can_query_whether_it_is_being_captured(
    device: GraphDevice, context: GraphContext
) -> None:
    seen: list[bool] = []

    def ask() -> None:
        session = context.capture_session
        seen.append(session is not None and session.capturing is not None)

    @runs_eagerly(context)
    def attention(x: Tensor) -> None:
        ask()
        x.mul_(2.0)

    def model() -> None:
        ask()
        attention(x)
        x.add_(1.0)

    x = full(device, 1.0)
    ask()
    graph, _ = captured(device, context, model, warmup_runs=0)
    graph.replay()
    ask()
    assert seen == [False, True, True, False, False]


def test_two_threads_capture_and_replay_at_the_same_time() -> None:
    barrier, results, errors = threading.Barrier(2), {}, []

    def work(factor: float) -> None:
        try:
            device = NpuDevice(capture_error_mode="thread_local")
            context = GraphContext()
            scale = eagerly(context, lambda x, by: x.mul_(by))
            x, buffer = full(device, 2.0), full(device, 0.0)

            def model() -> None:
                buffer.copy_(x)
                scale(buffer, factor)
                buffer.add_(1.0)

            stream = device.create_stream()
            with CaptureSession(device, context, stream=stream) as session:
                barrier.wait(60)
                graph = session.capture(model, subject="'model'", is_breakable=True).graph
                barrier.wait(60)
            x.fill_(4.0)
            graph.replay()
            results[factor] = values(buffer)
        except Exception as error:  # noqa: BLE001 - told by the thread of the test
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (3.0, 5.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert results == {3.0: [13.0] * 4, 5.0: [21.0] * 4}
    assert gc.isenabled()


# Training steps: a capture takes what autograd launches as it takes everything else.


def test_break_between_forward_and_backward_sees_the_loss_of_its_replay(
    device: GraphDevice, context: GraphContext
) -> None:
    weight = full(device, 0.5, 4, 4).requires_grad_()
    x, losses = full(device, 1.0, 2, 4), []

    @runs_eagerly(context)
    def log(loss: Tensor) -> None:
        losses.append(loss.item())

    def step() -> None:
        loss = ((x @ weight) * 2.0).sum()
        log(loss.detach())
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()  # type: ignore[no-untyped-call]

    step()
    assert weight.grad is not None
    graph, _ = captured(device, context, step, warmup_runs=0)
    assert (graph.num_graphs, graph.num_breaks) == (2, 1)
    losses.clear()
    for value in (2.0, 3.0):
        x.fill_(value)
        weight.grad.zero_()
        graph.replay()
        assert values(weight.grad) == [value * 2 * 2] * 16
    assert losses == [2.0 * 0.5 * 4 * 2 * 8, 3.0 * 0.5 * 4 * 2 * 8]


def test_training_step_with_a_layer_that_runs_eagerly_both_ways(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def forwards(out: Tensor, x: Tensor) -> None:
        out.copy_(x * (x > 0))

    @runs_eagerly(context)
    def backwards(out: Tensor, gradient: Tensor, x: Tensor) -> None:
        out.copy_(gradient * (x > 0))

    buffers = full(device, 0.0, 2, 4), full(device, 0.0, 2, 4)

    class EagerReLU(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            forwards(buffers[0], x)
            return buffers[0] * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            backwards(buffers[1], gradient, *ctx.saved_tensors)
            return buffers[1] * 1

    weights = [
        nn.Parameter(torch.linspace(-0.5, 0.5, 16).view(4, 4).to(device.torch_device))
        for _ in range(2)
    ]
    x = full(device, 1.0, 2, 4)

    def step(relu: Callable[[Tensor], Tensor]) -> None:
        loss = (relu(x @ weights[0]) @ weights[1]).sum()
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for weight in weights:
                weight.sub_(gradient_of(weight), alpha=0.125)

    def run(call: Callable[[], None], starts: list[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            for weight, start in zip(weights, starts, strict=True):
                weight.copy_(start)
                gradient_of(weight).zero_()
        call()
        return [weight.detach().clone() for weight in weights]

    eager_relu: Callable[[Tensor], Tensor] = EagerReLU.apply
    step(eager_relu)
    graph, _ = captured(device, context, lambda: step(eager_relu), warmup_runs=0)
    assert (graph.num_graphs, graph.num_breaks) == (3, 2)
    starts = [weight.detach().clone() for weight in weights]
    for value in (1.0, 2.0):
        x.fill_(value)
        found = run(graph.replay, starts)
        expected = run(lambda: step(plain_relu), starts)
        assert all(map(torch.equal, found, expected))


def plain_relu(value: Tensor) -> Tensor:
    return value * (value > 0)


def gradient_of(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def test_capture_does_not_import_dynamo() -> None:
    program = """
import sys
import cann_sim
cann_sim.activate()
import torch
from npu_graph_runtime import CaptureSession, GraphContext, NpuDevice, runs_eagerly
device, context = NpuDevice(), GraphContext()
attention = runs_eagerly(context)(lambda x: x * 2)
x = torch.ones(4, device=device.torch_device)
with CaptureSession(device, context) as session:
    capture = session.capture(lambda: attention(x + 1) + 1, subject="model", is_breakable=True)
assert capture.result.tolist() == [5.0] * 4
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
    assert run.stdout.split() == ["False"]
