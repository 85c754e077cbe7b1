"""Plans and captures models of ten shapes, in two modes, and prints forecast and actual use.

Runs in a separate process with null kernels, because the shapes are those of real models.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import cann_sim

cann_sim.activate()

import torch  # noqa: E402

from npu_graph_runtime import (  # noqa: E402
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.planning import CaptureBudget, CapturePlanner  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime.device import ExternalEvent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder and its captures, in each run mode.

    Attributes:
        layers: number of layers, each with attention and a gated feed-forward network.
        hidden: width.
        inner: width of the feed-forward networks.
        vocabulary: width of the output.
        sizes: candidates, in rows.
        keeps: whether attention returns new memory, which a segmented graph keeps.
        update: whether, in whole graphs, attention is a task group after an external event, as with
            an update lane.
        streams: limit of the budget, by run mode; by default what the device has.
        num_bytes: limit of the budget, by run mode; by default what the device has.
        mode: run mode.
    """

    layers: int
    hidden: int
    inner: int
    vocabulary: int
    sizes: tuple[int, ...]
    keeps: bool = False
    update: bool = False
    streams: Mapping[RunMode, int] = dataclasses.field(default_factory=dict)
    num_bytes: Mapping[RunMode, int] = dataclasses.field(default_factory=dict)
    mode: RunMode = RunMode.FULL

    @property
    def budget(self) -> tuple[int | None, int | None]:
        """Streams and bytes of the budget."""
        return self.streams.get(self.mode), self.num_bytes.get(self.mode)


FULL, BROKEN = RunMode.FULL, RunMode.BREAKABLE
FEW, SOME = (1, 2, 4, 8, 16, 32), (1, 2, 4, *range(8, 129, 8))
MANY, WIDE = (*SOME, *range(144, 513, 16)), (1, 8, *range(64, 513, 64))
SHAPES = (
    Shape(layers=28, hidden=1024, inner=3072, vocabulary=151936, sizes=FEW),
    Shape(layers=36, hidden=4096, inner=12288, vocabulary=151936, sizes=SOME, update=True),
    Shape(
        layers=64,
        hidden=5120,
        inner=25600,
        vocabulary=151936,
        sizes=SOME,
        keeps=True,
        streams={BROKEN: 400},
    ),
    Shape(layers=80, hidden=8192, inner=28672, vocabulary=128256, sizes=FEW, update=True),
    Shape(
        layers=61,
        hidden=7168,
        inner=18432,
        vocabulary=129280,
        sizes=SOME,
        update=True,
        streams={FULL: 5, BROKEN: 700},
    ),
    Shape(layers=61, hidden=7168, inner=18432, vocabulary=129280, sizes=SOME),
    Shape(
        layers=24,
        hidden=2048,
        inner=8192,
        vocabulary=32000,
        sizes=MANY,
        keeps=True,
        num_bytes={FULL: 120 * 2**20, BROKEN: 500 * 2**20},
    ),
    Shape(layers=24, hidden=2048, inner=8192, vocabulary=32000, sizes=SOME),
    Shape(layers=16, hidden=512, inner=1536, vocabulary=32000, sizes=WIDE, keeps=True),
    Shape(layers=4, hidden=256, inner=512, vocabulary=1000, sizes=MANY, keeps=True),
)


class Decoder:
    """Layers that share their weights, since only sizes matter."""

    def __init__(self, shape: Shape, device: NpuDevice, context: GraphContext) -> None:
        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.empty(rows, columns, dtype=torch.float16, device=device.torch_device)

        self._shape, self._device = shape, device
        self._projection = weight(shape.hidden, 3 * shape.hidden)
        self._gate = weight(shape.hidden, shape.inner)
        self._up = weight(shape.hidden, shape.inner)
        self._down = weight(shape.inner, shape.hidden)
        self._head = weight(shape.hidden, shape.vocabulary)
        self._attend = runs_eagerly(context)(self._attention)
        self._events: list[ExternalEvent] = []

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(self._shape.layers):
            query, key, value = (hidden @ self._projection).chunk(3, dim=-1)
            out = None if self._shape.keeps else torch.empty_like(hidden)
            hidden = hidden + self._attend(query + key, value, out)
            inner = torch.nn.functional.silu(hidden @ self._gate) * (hidden @ self._up)
            hidden = hidden + inner @ self._down
        return hidden @ self._head

    def _attention(
        self, query: torch.Tensor, value: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        if not self._shape.update or not self._device.is_capturing():
            return torch.mul(query, value, out=out)
        stream = self._device.current_stream()
        event = self._device.create_external_event()
        self._events.append(event)
        event.wait(stream)
        event.reset(stream)
        self._device.begin_task_group(stream)
        torch.mul(query, value, out=out)
        self._device.end_task_group(stream)
        assert out is not None
        return out


def used(device: NpuDevice) -> tuple[int, int]:
    """Return streams and bytes in use, as the device counts them."""
    device.synchronize()
    device.empty_cache()
    figures, free = device.memory_figures(), device.free_streams()
    assert free is not None
    return -free, figures.total - figures.free


def planned(shape: Shape, device: NpuDevice) -> dict[str, object]:
    """Capture the sizes that the planner requests."""
    context = GraphContext()
    graphed = GraphedCallable(
        Decoder(shape, device, context),
        device=device,
        context=context,
        run_mode=shape.mode,
        name="decoder",
    )
    buffer = torch.empty(
        max(shape.sizes), shape.hidden, dtype=torch.float16, device=device.torch_device
    )
    captures: list[int] = []
    early = None
    with CaptureSession(device, context), torch.no_grad():
        before, captured_before = used(device), cann_sim.counters().captures
        streams, num_bytes = shape.budget
        budget = CaptureBudget(streams=streams, num_bytes=num_bytes)
        planner = CapturePlanner(device, shape.sizes, budget=budget)
        while (size := planner.next_size()) is not None:
            captures.append(size)
            key = GraphKey(num_tokens=size)
            with context.run(shape.mode, key):
                graphed(buffer[:size])
            if not planner.captured(size):
                graphed.release(key)
            if len(captures) <= 2:
                early = planner.plan
        after, captured = used(device), cann_sim.counters().captures - captured_before
        assert early is not None
        assert early.forecast is not None
        plan = planner.plan
        result = {
            "forecast": [early.forecast.streams, early.forecast.num_bytes],
            "used": [now - then for now, then in zip(after, before, strict=True)],
            "kept_early": early.sizes,
            "kept": plan.sizes,
            "captures": captures,
            "device_captures": captured,
            "graphs": graphed.num_graphs,
            "budget": shape.budget,
            "sizes": shape.sizes,
            "plan": str(plan),
        }
    graphed.release_all()
    return result


if __name__ == "__main__":
    npu = NpuDevice()
    json.dump(
        [
            planned(dataclasses.replace(shape, mode=mode), npu)
            for shape in SHAPES
            for mode in (FULL, BROKEN)
        ],
        sys.stdout,
    )
