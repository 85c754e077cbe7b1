"""Hooks around captures and replays, and captures while serving."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import GraphNotCapturedError, InputAddressError

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY, OTHER = GraphKey(num_tokens=4), GraphKey(num_tokens=2)


class Hook:
    """Records when it is entered and left, and what was done in between."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes
        self.error: Exception | None = None

    @contextlib.contextmanager
    def __call__(self, key: GraphKey) -> Iterator[None]:
        self.notes.append(f"{self.name} {key.num_tokens} entered")
        if self.error is not None:
            raise self.error
        try:
            yield
        finally:
            self.notes.append(f"{self.name} {key.num_tokens} left")


class Model:
    """Adds a weight that a hook loads before the device reads it, as offloaded weights are."""

    def __init__(self, npu: NpuDevice, context: GraphContext, **options: Any) -> None:
        self.npu, self.context = npu, context
        self.notes: list[str] = []
        self.runs = 0
        mode = options.setdefault("run_mode", RunMode.FULL)
        self.weight = torch.zeros(4, device=npu.torch_device)
        self.x = torch.ones(4, device=npu.torch_device)
        half = runs_eagerly(context)(self.half)
        self.graphed = GraphedCallable(
            lambda x: half(self.add(x)) * 2,
            device=npu,
            context=context,
            name="model",
            **options,
        )
        self.mode = mode

    def half(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5

    def add(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return x + self.weight

    def __call__(self, key: GraphKey = KEY, x: torch.Tensor | None = None) -> list[float]:
        with self.context.run(self.mode, key):
            result: torch.Tensor = self.graphed(self.x if x is None else x)
        values: list[float] = result.cpu().tolist()
        return values


def test_hook_around_a_replay_is_where_weights_are_loaded(
    npu: NpuDevice, context: GraphContext
) -> None:
    @contextlib.contextmanager
    def loaded(key: GraphKey) -> Iterator[None]:
        model.weight.fill_(float(key.num_tokens))
        yield
        model.weight.fill_(-1.0)

    model = Model(npu, context, around_replay=loaded, around_capture=loaded)
    with CaptureSession(npu, context):
        model()
    assert model() == [5.0] * 4
    assert model() == [5.0] * 4


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
def test_hooks_surround_warm_up_and_capture_and_each_replay(
    npu: NpuDevice, context: GraphContext, mode: RunMode
) -> None:
    notes: list[str] = []
    capture, replay = Hook("capture", notes), Hook("replay", notes)
    model = Model(npu, context, run_mode=mode, around_capture=capture, around_replay=replay)
    with CaptureSession(npu, context):
        model(KEY)
        model(OTHER)
    assert notes == [
        "capture 4 entered",
        "capture 4 left",
        "capture 2 entered",
        "capture 2 left",
    ]
    notes.clear()
    model(OTHER)
    assert notes == ["replay 2 entered", "replay 2 left"]
    with pytest.raises(InputAddressError):
        model(OTHER, model.x.clone())
    assert len(notes) == 2  # nothing is launched, so nothing is prepared


def test_hook_that_raises_ends_the_call_and_leaves_the_graph_as_it_was(
    npu: NpuDevice, context: GraphContext
) -> None:
    notes: list[str] = []
    capture, replay = Hook("capture", notes), Hook("replay", notes)
    model = Model(npu, context, around_capture=capture, around_replay=replay)
    capture.error = replay.error = OSError("the store of weights is gone")
    with CaptureSession(npu, context), pytest.raises(OSError, match="the store of weights"):
        model()
    assert not model.graphed.captured_keys
    capture.error = None
    with CaptureSession(npu, context):
        model()
    with pytest.raises(OSError, match="the store of weights"):
        model()
    assert model.graphed.counters.replayed == 0
    replay.error = None
    assert model() == [1.0] * 4


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE, RunMode.PIECEWISE])
def test_missing_key_is_captured_while_serving_if_allowed(
    npu: NpuDevice, context: GraphContext, mode: RunMode
) -> None:
    pool, stream = npu.create_memory_pool(), npu.create_stream()
    model = Model(
        npu,
        context,
        run_mode=mode,
        lazy_session=lambda: CaptureSession(npu, context, pool, stream),
    )
    before = npu.current_stream()
    assert model(KEY) == [1.0] * 4  # written by a replay
    model.x.fill_(2.0)
    assert model(OTHER) == [2.0] * 4
    runs = model.runs
    model.x.fill_(3.0)
    assert model(KEY) == model(OTHER) == [3.0] * 4
    assert model.runs == runs
    assert npu.current_stream() == before
    assert context.capture_session is None
    assert model.graphed.captured_keys == (KEY, OTHER)
    assert (model.graphed.counters.captured, model.graphed.counters.missed) == (2, 2)


def test_missing_key_that_may_not_be_captured_is_a_miss(
    npu: NpuDevice, context: GraphContext
) -> None:
    doors: list[CaptureSession | None] = [None]
    model = Model(npu, context, lazy_session=lambda: doors[0])
    with pytest.raises(GraphNotCapturedError, match="no graph is captured under this key"):
        model()
    doors[0] = CaptureSession(npu, context)
    assert model() == [1.0] * 4
    doors[0] = None
    assert model() == [1.0] * 4


def test_capture_while_serving_that_fails_keeps_the_permission(
    npu: NpuDevice, context: GraphContext
) -> None:
    fails = [True]

    def function(x: torch.Tensor) -> torch.Tensor:
        if fails[0]:
            raise LookupError("no page for the token")
        return x + 1

    graphed = GraphedCallable(
        function,
        device=npu,
        context=context,
        run_mode=RunMode.FULL,
        name="model",
        lazy_session=lambda: CaptureSession(npu, context),
    )
    x = torch.ones(4, device=npu.torch_device)
    with context.run(RunMode.FULL, KEY):
        with pytest.raises(LookupError):
            graphed(x)
        assert context.capture_session is None
        fails[0] = False
        assert graphed(x).cpu().tolist() == [2.0] * 4
