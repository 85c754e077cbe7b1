"""Host cost of a breakable capture's replay, beside its segments replayed one by one, and of full.

Run by ``./nox -s bench -- breakable``; options as ``--layers=61``, ``--calls=20``. The real
torch_npu over cann-sim with kernels that do nothing: 62 segments of six operators each, and 61
functions that run eagerly between them and write into a buffer, as attention does. Subjects take
turns in one process. Prints a table and writes rows ``{subject, microseconds_per_step_median,
ratio_to_floor}`` to build/bench/breakable.json.

The floor replays the same segments, captured one by one, and calls the same functions in one loop.
That of a full capture, of one segment's operators with 17 tensors that are compared, is its graph.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from npu_graph_runtime import NpuDevice

FLOOR = "the segments one by one"
FULL_FLOOR = "the full graph by itself"
FULL = "full capture, with its context"
TURNS = 15
OPERATORS = 6


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    subject: str
    microseconds_per_step_median: float
    ratio_to_floor: float


def subjects(layers: int) -> tuple[dict[str, Callable[[], object]], Callable[[], None]]:
    """Return the measured subjects, ready to replay, and a function that waits for the device."""
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

    device, context, key = NpuDevice(), GraphContext(), GraphKey(num_tokens=8)
    hidden = torch.zeros(8, 64, device=device.torch_device)
    out = torch.zeros_like(hidden)

    def segment() -> None:
        for _ in range(OPERATORS):
            hidden.add_(out)

    def attention(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return result.copy_(x)

    marked = runs_eagerly(context)(attention)

    def model() -> None:
        for _ in range(layers):
            segment()
            marked(hidden, out)
        segment()

    breakable = GraphedCallable(
        model, device=device, context=context, run_mode=RunMode.BREAKABLE, name="breakable"
    )
    with CaptureSession(device, context) as session:
        graphs = [session.capture(segment, subject="segment").graph for _ in range(layers + 1)]
        with context.run(RunMode.BREAKABLE, key):
            breakable()

    def one_by_one() -> None:
        for graph in graphs[:-1]:
            graph.replay()
            attention(hidden, out)
        graphs[-1].replay()

    def replay() -> None:
        with context.run(RunMode.BREAKABLE, key):
            breakable()

    return {
        FLOOR: one_by_one,
        "breakable capture": replay,
        "eager": model,
        **full_subjects(device, segment, [torch.zeros_like(hidden) for _ in range(17)]),
    }, device.synchronize


def full_subjects(
    device: NpuDevice, segment: Callable[[], None], buffers: list[torch.Tensor]
) -> dict[str, Callable[[], object]]:
    """Return the replay of a full graph, by itself and as an engine calls it."""
    from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, RunMode

    context, key = GraphContext(), GraphKey(num_tokens=8)
    full = GraphedCallable(
        lambda *_: segment(), device=device, context=context, run_mode=RunMode.FULL, name="full"
    )

    def replay() -> None:
        with context.run(RunMode.FULL, key):
            full(*buffers)

    with CaptureSession(device, context):
        replay()
    return {FULL_FLOOR: full.graph_of(key).replay, FULL: replay}


def measure(layers: int, calls: int) -> list[Row]:
    """Return one row for each subject."""
    callables, synchronize = subjects(layers)
    seconds: dict[str, list[float]] = {name: [] for name in callables}
    for _ in range(TURNS):
        for name, function in callables.items():
            started = time.perf_counter()
            for _ in range(calls):
                function()
            synchronize()
            seconds[name].append((time.perf_counter() - started) / calls)
    medians = {name: statistics.median(values) * 1e6 for name, values in seconds.items()}
    return [
        Row(
            subject=name,
            microseconds_per_step_median=round(median, 1),
            ratio_to_floor=round(
                median / medians[FULL_FLOOR if name in {FULL_FLOOR, FULL} else FLOOR], 3
            ),
        )
        for name, median in medians.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    os.environ["CANN_SIM_KERNELS"] = "null"
    cann_sim.activate()
    rows = measure(options.layers, options.calls)
    table = Table("subject", "us a step", "ratio to its floor")
    for row in rows:
        figure = f"{row.microseconds_per_step_median:.1f}"
        table.add_row(row.subject, figure, f"{row.ratio_to_floor:.2f}")
    Console().print(table)
    path = Path("build/bench/breakable.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
