"""Graphs that ask before they are replayed, and calls that would replay them at once."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
)
from npu_graph_runtime.device import GuardingDevice
from npu_graph_runtime.errors import CaptureSessionError, ReplayRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime.device import DeviceGraph

KEY = GraphKey(num_tokens=1)


def capture(
    device: FakeDevice, values: torch.Tensor, refusal: Callable[[object], str | None]
) -> DeviceGraph:
    graph = device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool()):
        values.add_(1)
        assert device.guard_replays(refusal)
    return graph


def test_guard_is_called_before_each_replay_with_what_the_thread_expects() -> None:
    device, values, asked = FakeDevice(), torch.zeros(1), list[object]()

    def refusal(expected: object) -> str | None:
        asked.append(expected)
        return "not this one" if expected == "another" else None

    graph = capture(device, values, refusal)
    assert device.is_guarded(graph)
    graph.replay()
    device.expected_replay.step = "another"
    with pytest.raises(ReplayRefusedError, match="not this one"):
        graph.replay()
    device.expected_replay.step = "this"
    graph.replay()
    # What another thread expects is its own.
    thread = threading.Thread(target=graph.replay)
    thread.start()
    thread.join()

    device.synchronize()
    assert asked == [None, "another", "this", None]
    assert values.item() == 3


def test_guard_outside_of_a_capture_of_the_device_says_so() -> None:
    device = FakeDevice()
    assert isinstance(device, GuardingDevice)
    assert not device.guard_replays(lambda _: "never")
    graph = device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool()):
        torch.zeros(1).add_(1)
    assert not device.guard_replays(lambda _: "never")
    assert not device.is_guarded(graph)
    graph.replay()


def test_launch_is_wrapped_once_and_only_where_no_guard_refuses() -> None:
    device, values, said = FakeDevice(), torch.zeros(1), list[str]()
    refusals: list[str | None] = [None]

    def wrap(
        name: str,
    ) -> Callable[[Callable[[Any], None], Callable[[], Any]], Callable[[], None]]:
        def wrapped(launch: Callable[[Any], None], graph: Callable[[], Any]) -> Callable[[], None]:
            def replay() -> None:
                said.append(name)
                launch(graph())

            return replay

        return wrapped

    inner, outer = wrap("inner"), wrap("outer")
    graph = device.create_graph()
    assert not device.wrap_replays(inner)
    with device.capture(graph, pool=device.create_memory_pool()):
        values.add_(1)
        assert device.wrap_replays(inner)
        assert device.guard_replays(lambda _: "replaced")
        assert device.guard_replays(lambda _: refusals[-1])
        assert device.wrap_replays(outer)
        assert device.wrap_replays(inner)
    assert not device.wrap_replays(inner)
    graph.replay()
    assert said == ["outer", "inner"]
    refusals.append("not now")
    with pytest.raises(ReplayRefusedError, match="not now"):
        graph.replay()
    assert said == ["outer", "inner"]
    assert values.item() == 1


@pytest.mark.parametrize("is_guarded", [False, True])
def test_wrapped_graph_dies_with_its_last_reference(is_guarded: bool) -> None:
    device = FakeDevice()
    graph = device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool()):
        torch.zeros(1).add_(1)
        device.wrap_replays(lambda launch, graph: lambda: launch(graph()))
        if is_guarded:
            device.guard_replays(lambda _: None)
    assert device.is_guarded(graph) is is_guarded
    reference = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert reference() is None
    finally:
        gc.enable()


def test_guarded_graph_that_its_refusal_reaches_is_collected() -> None:
    device = FakeDevice()

    def captured() -> weakref.ref[DeviceGraph]:
        reached: list[object] = []
        graph = capture(device, torch.zeros(1), lambda _: str(reached))
        reached.append(graph)
        return weakref.ref(graph)

    reference = captured()
    gc.collect()
    assert reference() is None


def test_guarded_graph_dies_with_its_last_reference() -> None:
    graph = capture(FakeDevice(), torch.zeros(1), lambda _: None)
    reference = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert reference() is None
    finally:
        gc.enable()


def test_call_that_would_replay_a_guarded_graph_at_once_is_refused() -> None:
    device, context, values = FakeDevice(), GraphContext(), torch.zeros(1)

    def function() -> torch.Tensor:
        device.guard_replays(lambda _: None)
        return values.add_(1)

    graphed = GraphedCallable(
        function,
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="attention",
        lazy_session=lambda: CaptureSession(device, context),
    )
    problem = r"replay the new graph at once \(lazy_session\)"
    refused = pytest.raises(CaptureSessionError, match=problem)
    with context.run(RunMode.FULL, KEY), refused:
        graphed()

    assert graphed.captured_keys == ()
    assert graphed.counters.replayed == 0
    assert device.memory_figures().allocated == 0
