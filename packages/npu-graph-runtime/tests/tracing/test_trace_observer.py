"""Captures and replays in a trace, on the fake device and on the real torch_npu."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import GraphNotCapturedError
from npu_graph_runtime.tracing import Trace, TraceObserver

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice, GraphDevice, NpuDevice

KEY = GraphKey(num_tokens=4)


def traced_step(device: GraphDevice, run_mode: RunMode) -> list[dict[str, Any]]:
    """Capture a step of two captured segments, replay it on two streams, and miss a key."""
    context, trace = GraphContext(), Trace()
    observer = TraceObserver(trace, device)
    values = torch.ones(4, 2, device=device.torch_device)

    @runs_eagerly(context)
    def attention(layer: str) -> None:
        values.mul_(2.0)

    def step() -> torch.Tensor:
        values.add_(1.0)
        if run_mode is RunMode.BREAKABLE:
            attention("layers.0")
        return values + 1.0

    graphed = GraphedCallable(
        step, device=device, context=context, run_mode=run_mode, name="step", observer=observer
    )
    session = CaptureSession(device, context, observer=observer)
    with session, context.run(run_mode, KEY):
        graphed()
    with context.run(run_mode, KEY):
        graphed()
        device.synchronize()
        with device.use_stream(device.create_stream()):
            graphed()
    with context.run(run_mode, GraphKey(num_tokens=5)), pytest.raises(GraphNotCapturedError):
        graphed()
    graphed.release_all()
    events: list[dict[str, Any]] = trace.to_mapping()["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the spans and moments by track, in order of their begin, the longer first."""
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    shown = sorted(
        (event for event in events if event["ph"] in "Xi"),
        key=lambda event: (event["ts"], -event.get("dur", 0)),
    )
    return {
        name: [event for event in shown if event["tid"] == number] for number, name in names.items()
    }


def test_replays_are_on_the_track_of_their_stream(fake: FakeDevice) -> None:
    found = tracks(traced_step(fake, RunMode.FULL))

    for number in (1, 2):
        (span,) = found[f"replays queued on stream {number}"]
        assert (span["name"], span["args"]["key"]) == ("replay step", str(KEY))
        assert span["dur"] > 0
    names = [event["name"] for event in found["captures"]]
    assert [name.split(" under ")[0] for name in names] == [
        "capture step",
        "warm-up",
        "step missed",
        "step released",
    ]


def test_segments_are_inside_their_replay(fake: FakeDevice) -> None:
    events = traced_step(fake, RunMode.BREAKABLE)
    whole, *segments = tracks(events)["replays queued on stream 1"]

    assert [segment["name"] for segment in segments] == [
        "segment 1 (before attention('layers.0'))",
        "attention('layers.0')",
        "segment 2 (behind attention('layers.0'))",
    ]
    assert [segment["args"]["runs"] for segment in segments] == ["captured", "eagerly", "captured"]
    assert whole["ts"] <= segments[0]["ts"]
    assert segments[-1]["ts"] + segments[-1]["dur"] <= whole["ts"] + whole["dur"]
    for before, behind in itertools.pairwise(segments):
        assert before["ts"] + before["dur"] <= behind["ts"] + 0.002  # rounded


def test_session_ends_with_the_memory_of_each_pool(npu: NpuDevice) -> None:
    events = traced_step(npu, RunMode.FULL)

    (session,) = (event for event in events if event["name"] == "1 graphs")
    pools = session["args"]["pools"]
    assert len(pools) > 1  # that of the graphs and that of everything else
    assert all(pool["reserved"] >= pool["allocated"] >= 0 for pool in pools.values())
    curves = [event for event in events if event["ph"] == "C"]
    assert len(curves) == 3
    assert curves[-1]["args"]["reserved"] == pytest.approx(
        sum(pool["reserved"] for pool in pools.values()) / 2**20
    )
