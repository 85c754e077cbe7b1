"""Ways to a stale value or a broken re-capture, closed: on the real torch_npu over cann-sim."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    GraphRuntimeError,
    NpuDevice,
    RunMode,
)
from npu_graph_runtime.errors import InputAddressError

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = GraphKey(num_tokens=4)


def graphed(npu: NpuDevice, context: Any, function: Callable[..., Any]) -> GraphedCallable:
    return GraphedCallable(
        function, device=npu, context=context, run_mode=RunMode.FULL, name="decode"
    )


def capture(npu: NpuDevice, context: Any, step: GraphedCallable, *args: Any, pool: Any) -> None:
    with CaptureSession(npu, context, pool), context.run(RunMode.FULL, KEY):
        step(*args)


@pytest.fixture
def x(npu: NpuDevice) -> torch.Tensor:
    return torch.arange(16.0).view(4, 4).to(npu.torch_device)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (x.t(),),  # other strides
        lambda x: (x.view(2, 8),),  # another shape
        lambda x: (x.view(torch.int32),),  # another dtype
        lambda x: (x[:2],),  # fewer rows
        lambda x: (x, x),  # a further tensor
        lambda x: (x, 2.0),  # another number
    ],
)
def test_other_input_at_the_same_address_is_refused_at_any_replay(
    npu: NpuDevice, context: GraphContext, x: torch.Tensor, other: Any
) -> None:
    step = graphed(npu, context, lambda x, *more: x * 2 + sum(more))
    capture(npu, context, step, x, 1.0, pool=None)
    with context.run(RunMode.FULL, KEY):
        for _ in range(2):
            step(x, 1.0)
        changed = other(x)
        with pytest.raises(InputAddressError, match="replaying 'decode'"):
            step(*changed if len(changed) > 1 else (*changed, 1.0))
        assert torch.equal(step(x, 1.0).cpu(), x.cpu() * 2 + 1)


def test_keys_whose_values_are_equal_and_of_other_types_have_graphs_of_their_own(
    npu: NpuDevice, context: GraphContext, x: torch.Tensor
) -> None:
    step = graphed(npu, context, lambda x: x * (2 if context.key == keys[0] else 3))
    keys = [GraphKey(num_tokens=4, extra=(1,)), GraphKey(num_tokens=4, extra=(True,))]
    with CaptureSession(npu, context):
        for key in keys:
            with context.run(RunMode.FULL, key):
                step(x)
    for key, factor in zip(keys, (2, 3), strict=True):
        with context.run(RunMode.FULL, key):
            assert torch.equal(step(x).cpu(), x.cpu() * factor)


def test_run_mode_of_another_thread_is_never_taken_for_ones_own(
    npu: NpuDevice, context: GraphContext, x: torch.Tensor
) -> None:
    inside, left = threading.Event(), threading.Event()

    def serve() -> None:
        with context.run(RunMode.FULL, KEY):
            inside.set()
            left.wait(60)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert inside.wait(60)
        with pytest.raises(GraphRuntimeError, match="expected no other thread"):
            context.run(RunMode.FULL, GraphKey(num_tokens=8)).__enter__()
        assert context.key == KEY
    finally:
        left.set()
        thread.join()
    assert context.mode is RunMode.EAGER
    step = graphed(npu, context, lambda x: x * 2)
    capture(npu, context, step, x, pool=None)


def test_released_graphs_are_captured_again_into_their_pool(
    npu: NpuDevice, context: GraphContext, x: torch.Tensor
) -> None:
    step = graphed(npu, context, lambda x: x * 2)
    pool = npu.create_memory_pool()
    for _ in range(3):
        capture(npu, context, step, x, pool=pool)
        with context.run(RunMode.FULL, KEY):
            assert torch.equal(step(x).cpu(), x.cpu() * 2)
        step.release_all()


def test_capture_is_tried_again_when_the_first_of_a_session_failed(
    npu: NpuDevice, context: GraphContext, x: torch.Tensor
) -> None:
    fails = [True]

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if fails[0]:
            raise LookupError("no page for the token")
        return y

    step = graphed(npu, context, function)
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        for _ in range(2):
            with pytest.raises(LookupError):
                step(x)
        fails[0] = False
        step(x)
        assert torch.equal(step(x).cpu(), x.cpu() * 2)


class ForwardContext:
    """An engine's own state of a step; it inherits nothing from this package."""

    def __init__(self) -> None:
        self.mode = RunMode.EAGER
        self.key: GraphKey | None = None
        self.capture_session: CaptureSession | None = None


def test_context_of_an_engine_captures_and_replays(npu: NpuDevice, x: torch.Tensor) -> None:
    context = ForwardContext()
    step = graphed(npu, context, lambda x: x * 2)
    context.mode, context.key = RunMode.FULL, KEY
    with CaptureSession(npu, context):
        step(x)
    x.fill_(3.0)
    assert step(x).cpu().tolist() == [[6.0] * 4] * 4
    assert step.counters.replayed == 1
