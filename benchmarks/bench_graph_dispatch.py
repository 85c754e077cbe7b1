"""Host cost of replaying a captured callable, above the device's own replay.

Run by ``./nox -s bench -- graph-dispatch``; options as ``--tensors=1,17``, ``--calls=20000``. The
graph is empty and on FakeDevice, so only the host is measured. Subjects take turns in one process,
so noise of the machine meets them alike. Prints a table and writes rows ``{case, tensors, subject,
microseconds_per_call_median, microseconds_above_floor}`` to build/bench/graph-dispatch.json.

The floor is the bare replay of the graph. The engine-style subject does what the graph wrappers of
the engines do at a replay: key from a context object, entry from a dict, with and without the debug
mode that compares the addresses of positional arguments.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import DeviceGraph, RuntimeEvent

FLOOR = "bare replay of the device graph"
TURNS = 15


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    tensors: int
    subject: str
    microseconds_per_call_median: float
    microseconds_above_floor: float


class EngineKey(NamedTuple):
    """A graph key as a named tuple, hashed at each look-up."""

    num_tokens: int
    num_sequences: int | None
    uniform: bool
    num_active_loras: int


class EngineWrapper:
    """The replay path of an engine's wrapper, reduced to what it has to do."""

    def __init__(self, key: EngineKey, graph: DeviceGraph, addresses: list[int] | None) -> None:
        self.key = key
        self.entries = {key: (graph, addresses)}

    def __call__(self, *args: object) -> None:
        graph, addresses = self.entries[self.key]
        if addresses is not None:
            found = [value.data_ptr() for value in args if isinstance(value, torch.Tensor)]
            if found != addresses:
                raise ValueError("input addresses differ")
        graph.replay()


class Silent:
    """Observes and forgets."""

    def observe(self, event: RuntimeEvent, /) -> None:
        """Do nothing."""


def subjects(tensors: int) -> tuple[dict[str, Callable[..., object]], list[torch.Tensor]]:
    """Return what is measured, ready to replay, and the arguments of each call."""
    device, context = FakeDevice(), GraphContext()
    arguments = [torch.zeros(4) for _ in range(tensors)]
    key = GraphKey(num_tokens=4)
    graphed = {
        f"GraphedCallable, addresses checked: {check.value}": GraphedCallable(
            lambda *_: None,
            device=device,
            context=context,
            run_mode=RunMode.FULL,
            name=check.value,
            address_check=check,
        )
        for check in AddressCheck
    }
    graphed["GraphedCallable, addresses checked: always, observed"] = GraphedCallable(
        lambda *_: None,
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="observed",
        observer=Silent(),
    )
    # Entered for the rest of the process: a step enters it once, for all its pieces.
    context.run(RunMode.FULL, key).__enter__()
    with CaptureSession(device, context) as session:
        for wrapper in graphed.values():
            wrapper(*arguments)
        graph = session.capture(lambda: None, subject="floor").graph
    engine_key = EngineKey(4, None, uniform=False, num_active_loras=0)
    addresses = [tensor.data_ptr() for tensor in arguments]
    return {
        FLOOR: lambda *_: graph.replay(),
        "engine-style wrapper": EngineWrapper(engine_key, graph, None),
        "engine-style wrapper, debug mode": EngineWrapper(engine_key, graph, addresses),
        **graphed,
    }, arguments


def measure(tensors: int, calls: int) -> list[Row]:
    """Return one row for each subject."""
    callables, arguments = subjects(tensors)
    seconds: dict[str, list[float]] = {name: [] for name in callables}
    for _ in range(TURNS):
        for name, function in callables.items():
            started = time.perf_counter()
            for _ in range(calls):
                function(*arguments)
            seconds[name].append((time.perf_counter() - started) / calls)
    medians = {name: statistics.median(values) * 1e6 for name, values in seconds.items()}
    return [
        Row(
            case="replay of an empty graph",
            tensors=tensors,
            subject=name,
            microseconds_per_call_median=round(median, 3),
            microseconds_above_floor=round(median - medians[FLOOR], 3),
        )
        for name, median in medians.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", default="1,5,17")
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    rows = [row for text in options.tensors.split(",") for row in measure(int(text), options.calls)]
    table = Table("tensors", "subject", "us a call", "us above the bare replay")
    for row in rows:
        figures = (row.microseconds_per_call_median, row.microseconds_above_floor)
        table.add_row(str(row.tensors), row.subject, *(f"{figure:.2f}" for figure in figures))
    Console().print(table)
    out = Path("build/bench/graph-dispatch.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
