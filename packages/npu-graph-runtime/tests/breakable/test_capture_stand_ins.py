"""Stand-ins at capture, hooks after segments, and breaks without work."""

from __future__ import annotations

import threading
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
    NpuDevice,
    RunMode,
    break_graph,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import CaptureGuard, find_first_difference
from npu_graph_runtime.errors import EagerSegmentError

KEY = GraphKey(num_tokens=4)


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    device: FakeDevice | NpuDevice = request.getfixturevalue(request.param)
    return device


def graphed(device: GraphDevice, context: GraphContext, model: Any, **options: Any) -> Any:
    given = {"run_mode": RunMode.BREAKABLE, "name": "model", **options}
    return GraphedCallable(model, device=device, context=context, **given)


def captured(
    device: GraphDevice, context: GraphContext, step: Any, x: Tensor, **session: Any
) -> Any:
    with CaptureSession(device, context, **session), context.run(RunMode.BREAKABLE, KEY):
        return step(x)


def replayed(context: GraphContext, step: Any, x: Tensor) -> list[float]:
    with context.run(RunMode.BREAKABLE, KEY):
        values: list[float] = step(x).cpu().tolist()
    return values


def ones(device: GraphDevice) -> Tensor:
    return torch.ones(2, device=device.torch_device)


@pytest.mark.parametrize("guard", list(CaptureGuard))
@pytest.mark.parametrize("warmup_runs", [0, 1])
def test_stand_in_runs_in_the_capture_and_the_function_at_each_replay(
    device: GraphDevice, context: GraphContext, warmup_runs: int, guard: CaptureGuard
) -> None:
    called: list[str] = []

    def stand_in(x: Tensor, scale: float) -> Tensor:
        called.append("stand-in")
        return torch.zeros_like(x) * scale

    @runs_eagerly(context, at_capture=stand_in)
    def send(x: Tensor, scale: float) -> Tensor:
        called.append("function")
        return x * scale

    step = graphed(
        device,
        context,
        lambda x: send(x + 1, 10.0) + 5,
        warmup_runs=warmup_runs,
        guard=guard,
    )
    x = ones(device)
    first = captured(device, context, step, x)
    num_eager = warmup_runs + (guard is not CaptureGuard.OFF)
    assert called == ["function"] * num_eager + ["stand-in"]
    assert first.cpu().tolist() == [5.0] * 2

    called.clear()
    for value in (3.0, 4.0):
        x.fill_(value)
        assert replayed(context, step, x) == [(value + 1) * 10 + 5] * 2
    assert called == ["function"] * 2
    with context.run(RunMode.EAGER):
        assert step(x).cpu().tolist() == [55.0] * 2
    assert called == ["function"] * 3

    def call() -> Any:
        with context.run(RunMode.BREAKABLE, KEY):
            return step(x)

    assert find_first_difference(call, [step]) is None


def test_stand_in_that_returns_something_else_is_an_error_at_the_replay(
    device: GraphDevice, context: GraphContext
) -> None:
    mark = runs_eagerly(context, at_capture=lambda x: x.new_zeros(3))
    double: Any = mark(lambda x: x * 2)
    step = graphed(device, context, lambda x: double(x).sum() + x, warmup_runs=0)
    x = ones(device)
    captured(device, context, step, x)

    with pytest.raises(EagerSegmentError, match=r"expected .*\(3,\)"):
        replayed(context, step, x)


def test_stand_in_may_write_into_the_output_that_it_is_given(
    device: GraphDevice, context: GraphContext
) -> None:
    out = ones(device) * 0
    mark = runs_eagerly(context, at_capture=lambda x, out: None)

    def attend_into(x: Tensor, out: Tensor) -> None:
        out.copy_(x * 3)

    attend = mark(attend_into)

    def model(x: Tensor) -> Tensor:
        attend(x + 1, out)
        return out + 1

    step = graphed(device, context, model, warmup_runs=0)
    x = ones(device)
    captured(device, context, step, x)
    assert out.cpu().tolist() == [0.0, 0.0]
    assert replayed(context, step, x) == [7.0, 7.0]


def test_hook_is_called_after_each_segment_of_a_capture_and_at_no_replay(
    device: GraphDevice, context: GraphContext
) -> None:
    seen: list[str] = []

    @runs_eagerly(context)
    def attend(x: Tensor) -> Tensor:
        seen.append("eager")
        return x * 2

    step = graphed(device, context, lambda x: attend(attend(x + 1) + 1) + 1, warmup_runs=0)
    x = ones(device)
    captured(device, context, step, x, after_segment=lambda: seen.append("segment"))
    assert seen == ["segment", "eager", "segment", "eager", "segment"]

    seen.clear()
    assert replayed(context, step, x) == [11.0, 11.0]
    assert seen == ["eager", "eager"]


def test_failing_hook_ends_the_capture_and_leaves_the_session_usable(
    device: GraphDevice, context: GraphContext
) -> None:
    fails = [True]

    def barrier() -> None:
        if fails:
            raise TimeoutError("rank 3 did not come")

    attend: Any = runs_eagerly(context)(lambda x: x * 2)
    step = graphed(device, context, lambda x: attend(x + 1) + 1)
    x = ones(device)
    session = CaptureSession(device, context, after_segment=barrier)
    with session, context.run(RunMode.BREAKABLE, KEY):
        with pytest.raises(TimeoutError, match="rank 3"):
            step(x)
        assert not step.captured_keys
        assert not device.is_capturing()
        fails.clear()
        step(x)
    assert replayed(context, step, x) == [5.0, 5.0]


def test_ranks_that_capture_at_different_speed_synchronise_after_each_segment() -> None:
    """Without the barrier the faster rank would wait inside its collective for the slower one."""
    barrier, order = threading.Barrier(2), list[tuple[int, int]]()
    errors: list[BaseException] = []

    def capture(rank: int) -> None:
        device, context, layer = FakeDevice(), GraphContext(), [0]

        @runs_eagerly(context)
        def reduce(x: Tensor) -> Tensor:
            order.append((layer[0], rank))
            layer[0] += 1
            return x * 2

        def model(x: Tensor) -> Tensor:
            for _ in range(4):
                x = reduce(x + 1)
            return x + 1

        step = graphed(device, context, model, warmup_runs=0)
        try:
            captured(device, context, step, ones(device), after_segment=lambda: barrier.wait(30))
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=capture, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [layer for layer, _ in order] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("place", ["first", "middle", "last", "twice"])
def test_break_without_work_divides_a_capture(
    device: GraphDevice, context: GraphContext, place: str
) -> None:
    def model(x: Tensor) -> Tensor:
        if place == "first":
            break_graph(context)
        x = x + 1
        if place in {"middle", "twice"}:
            break_graph(context)
        if place == "twice":
            break_graph(context)
        x = x * 3
        if place == "last":
            break_graph(context)
        return x

    step = graphed(device, context, model)
    x = ones(device)
    captured(device, context, step, x)
    assert step.num_graphs == (3 if place == "twice" else 2)
    x.fill_(4.0)
    assert replayed(context, step, x) == [15.0, 15.0]
    with context.run(RunMode.EAGER):
        assert step(x).cpu().tolist() == [15.0, 15.0]
    # In a capture of the whole there is nothing to break.
    whole = graphed(device, context, model, run_mode=RunMode.FULL, name="whole")
    with CaptureSession(device, context), context.run(RunMode.FULL, KEY):
        whole(x)
    assert whole.num_graphs == 1
