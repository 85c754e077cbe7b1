"""What SGLang's, TensorRT-LLM's and meta's tests of breakable capture check, checked of ours.

The page docs/how-to/breakable-capture.md says which of their tests each one answers.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_graph_runtime import (
    Capture,
    CaptureSession,
    CaptureSessionError,
    EagerSegmentError,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    GraphNotCapturedError,
    NpuDevice,
    RunMode,
    SegmentedGraph,
    runs_eagerly,
)

KEY = GraphKey(num_tokens=4)
Captured = tuple[SegmentedGraph, Any]


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    device: FakeDevice | NpuDevice = request.getfixturevalue(request.param)
    return device


def captured(
    device: GraphDevice, context: GraphContext, call: Callable[[], Any], warmup_runs: int = 1
) -> Captured:
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
    library = torch.library.Library("breakable_test", "FRAGMENT")
    library.define("keep(Tensor x, int number) -> ()")

    def keep(x: Tensor, number: int) -> None:
        KEPT[number].append(x * 3)

    library.impl("keep", keep, "CompositeExplicitAutograd")
    return library


KEPT: dict[int, list[Tensor]] = {}


@pytest.mark.parametrize("way", ["closure", "attribute", "object", "opaque operator", "reused"])
def test_memory_that_is_kept_and_not_returned_is_refused_where_captured_work_reads_it(
    device: GraphDevice, context: GraphContext, library: Any, way: str
) -> None:
    del library
    sink: list[Tensor] = KEPT.setdefault(id(device), [])
    state, holder = SimpleNamespace(), {"block": full(device, 0.0, 1_000_003)}

    @runs_eagerly(context)
    def attention(x: Tensor) -> Any:
        sink.clear()
        if way == "closure":
            sink.append(x * 3)
        elif way == "attribute":
            state.hidden = x * 3
        elif way == "opaque operator":
            torch.ops.breakable_test.keep(x, id(device))
        elif way == "reused":
            holder.clear()
            sink.append(full(device, 3.0, 1_000_003)[:4])
        return SimpleNamespace(hidden=x * 3) if way == "object" else None

    def model(x: Tensor) -> Any:
        result = attention(x)
        if way == "object":
            return result.hidden + 1
        return (state.hidden if way == "attribute" else sink[0]) + 1

    x = full(device, 1.0)
    with pytest.raises(EagerSegmentError, match=r"add.* reads memory that attention made and did"):
        captured(device, context, lambda: model(x))
    assert not device.is_capturing()
    assert not context.capture_session
