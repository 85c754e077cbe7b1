from __future__ import annotations

import threading

import pytest
import torch

from npu_graph_runtime import (
    CallContext,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import ContextThreadError, GraphKeyError

KEY = GraphKey(num_tokens=4)


def test_context_outside_run_is_eager(context: GraphContext) -> None:
    assert (context.mode, context.key, context.capture_session) == (RunMode.EAGER, None, None)


def test_context_run_nested_restores_each_level(context: GraphContext) -> None:
    with context.run(RunMode.FULL, KEY):
        with context.run(RunMode.EAGER):
            assert (context.mode, context.key) == (RunMode.EAGER, None)
        assert (context.mode, context.key) == (RunMode.FULL, KEY)
    assert (context.mode, context.key) == (RunMode.EAGER, None)


def test_context_run_left_by_exception_restores(context: GraphContext) -> None:
    with pytest.raises(ZeroDivisionError), context.run(RunMode.PIECEWISE, KEY):
        _ = 1 // 0
    assert (context.mode, context.key) == (RunMode.EAGER, None)


def test_context_run_entered_again_sets_again(context: GraphContext) -> None:
    span = context.run(RunMode.FULL, KEY)
    seen: list[RunMode] = []
    for _ in range(2):
        with span:
            seen.append(context.mode)
        seen.append(context.mode)
    assert seen == [RunMode.FULL, RunMode.EAGER] * 2


@pytest.mark.parametrize("mode", [RunMode.PIECEWISE, RunMode.FULL])
def test_context_run_capturing_mode_without_key_raises(
    context: GraphContext, mode: RunMode
) -> None:
    with pytest.raises(GraphKeyError, match=f"run mode {mode.name}: the graph key is None"):
        context.run(mode)
    assert context.mode is RunMode.EAGER


def test_context_run_on_a_second_thread_is_refused_and_changes_nothing(
    context: GraphContext,
) -> None:
    refused: list[ContextThreadError] = []

    def enter() -> None:
        try:
            with context.run(RunMode.EAGER):
                pass
        except ContextThreadError as error:
            refused.append(error)

    with context.run(RunMode.FULL, KEY):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert (context.mode, context.key) == (RunMode.FULL, KEY)
    assert "is in run mode FULL of the same context" in str(refused)
    assert context.mode is RunMode.EAGER
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(refused) == 1


class ForwardContext:
    """An engine's own state of a step; it inherits nothing from this package."""

    def __init__(self) -> None:
        self.mode = RunMode.EAGER
        self.key: GraphKey | None = None
        self.capture_session: CaptureSession | None = None
        self.attention_metadata: object = None


def test_graphed_callable_takes_a_context_of_the_engines(fake: FakeDevice) -> None:
    context = ForwardContext()
    fits: CallContext = context
    tokens = torch.zeros(4)

    @runs_eagerly(fits)
    def attention(value: torch.Tensor) -> torch.Tensor:
        return value + 1

    graphed = GraphedCallable(
        lambda value: attention(value * 2) * 3,
        device=fake,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="step",
    )
    context.mode, context.key = RunMode.BREAKABLE, GraphKey(num_tokens=4)
    with CaptureSession(fake, context):
        graphed(tokens)
    tokens.fill_(5.0)
    output = graphed(tokens)
    fake.synchronize()

    assert output.tolist() == [33.0] * 4
    assert graphed.counters.replayed == 1
    context.mode = RunMode.EAGER
    assert graphed(tokens).tolist() == [33.0] * 4
    assert graphed.counters.replayed == 1
