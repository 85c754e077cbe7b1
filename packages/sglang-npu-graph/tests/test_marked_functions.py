"""What the engine marks to run eagerly ends a segment of a capture of ours, and of no other."""

from __future__ import annotations

import functools
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
    SegmentedGraph,
)
from npu_graph_runtime.errors import EagerSegmentError
from sglang_npu_graph.marked_functions import run_marked

if TYPE_CHECKING:
    from collections.abc import Callable


class Marked:
    """Shaped as what the engine's decorator `eager_on_graph` makes; `calls` counts its own way."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._eager_call = body
        self.calls = 0

    def run_eager(self, *args: Any, **kwargs: Any) -> Any:
        return self._eager_call(*args, **kwargs)

    def own(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.run_eager(*args, **kwargs)


class Layer:
    layer_id = 7

    def attend(self, hidden: torch.Tensor, out: torch.Tensor, lengths: list[int]) -> None:
        out.copy_(hidden[: lengths[0]].sum(0) + hidden)

    def keep(self, hidden: torch.Tensor, out: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        return hidden[: lengths[0]] * out[0]


def captured(body: Callable[..., Any], lengths: list[int]) -> tuple[GraphedCallable, Marked, Any]:
    """Return a step with a marked function in its middle, which is captured, and a replay."""
    device, context = FakeDevice(), GraphContext()
    marked, around = Marked(functools.partial(body, Layer())), run_marked(context)

    def step(hidden: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(hidden)
        result = around(Marked.own, marked, hidden + 1, out, lengths)
        return (out if result is None else result) * 2

    graphed = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.BREAKABLE, name="prefill"
    )
    hidden, key = torch.zeros(4, 2), GraphKey(num_tokens=4)

    def run(value: float) -> torch.Tensor:
        hidden.fill_(value)
        with context.run(RunMode.BREAKABLE, key):
            result: torch.Tensor = graphed(hidden)
        return result.clone()

    with CaptureSession(device, context):
        run(0.0)
    return graphed, marked, run


def test_a_marked_function_is_called_at_each_replay_with_the_lengths_of_that_step() -> None:
    lengths = [3]
    graphed, marked, run = captured(Layer.attend, lengths)
    graph = graphed.graph_of(GraphKey(num_tokens=4))
    assert isinstance(graph, SegmentedGraph)
    assert (graph.num_graphs, graph.num_breaks) == (2, 1)
    for value, length in ((2.0, 4), (5.0, 1)):
        lengths[0] = length
        assert torch.equal(run(value), torch.full((4, 2), 2 * (value + 1) * (length + 1)))
    assert marked.calls == 0, "the engine's own way was taken inside a capture of ours"


def test_messages_name_the_function_and_its_layer() -> None:
    lengths = [3]
    _, _, run = captured(Layer.keep, lengths)
    lengths[0] = 2
    with pytest.raises(EagerSegmentError, match="keep of layer 7, which runs eagerly"):
        run(1.0)


def test_outside_a_capture_the_engine_runs_its_own_code() -> None:
    marked = Marked(lambda value: value + 1)
    assert run_marked(GraphContext())(Marked.own, marked, 1) == 2
    assert marked.calls == 1
