"""Host cost of replaying a captured callable, above the device's own replay.

Run by ``./nox -s bench -- graph-dispatch``; options as ``--tensors=1,17``, ``--calls=20000``,
``--devices=fake``. The graph is empty on FakeDevice, and one launch that does nothing on the real
torch_npu over cann-sim, so only the host is measured. Subjects take turns in one process, so noise
of the machine meets them alike, and time is that of the calling thread. Prints a table and writes
rows ``{device, tensors, subject, microseconds_per_call_least, microseconds_per_call_median,
microseconds_above_floor, ratio_to_floor}`` to build/bench/graph-dispatch.json; the last two are of
the least ones.

The floor is the bare replay of the graph. The engine-style subject does what the graph wrappers of
the engines do at a replay: key from a context object, entry from a dict, with and without the debug
mode that compares the addresses of positional arguments. In its step a subject enters run mode and
key too, by a span that was made once: a step does that once, for all its pieces.

Subjects that copy their arguments into the graph and its result out of it have a floor of their
own: the copies and the bare replay. The exact-signature runner does what engines write by hand,
such as vllm-omni's NPUExactGraphRunner: a key of shapes, dtypes and devices, copies in, replay,
copies out. `torch.cuda.make_graphed_callables` needs CUDA and is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import cann_sim
from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    graphed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph
    from npu_graph_runtime.observer import RuntimeEvent

FLOOR = "bare replay of the device graph"
COPYING_FLOOR = "copies in, bare replay, copy out"
TURNS = 30


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    device: str
    tensors: int
    subject: str
    microseconds_per_call_least: float
    microseconds_per_call_median: float
    microseconds_above_floor: float
    ratio_to_floor: float


class EngineKey(NamedTuple):
    """A graph key as a named tuple, hashed at each look-up."""

    num_tokens: int
    num_sequences: int | None
    uniform: bool
    num_active_loras: int


class EngineWrapper:
    """The replay path of an engine's wrapper, reduced to the necessary steps."""

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


class ExactSignatureRunner:
    """A runner by exact signature, reduced to the necessary steps of a replay."""

    def __init__(
        self, graph: DeviceGraph, inputs: list[torch.Tensor], output: torch.Tensor
    ) -> None:
        self.graphs = {("step", (), self._signature(inputs)): (graph, inputs, output)}

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        graph, inputs, output = self.graphs["step", (), self._signature(args)]
        with torch.inference_mode():
            for buffer, value in zip(inputs, args, strict=True):
                buffer.copy_(value)
            graph.replay()
            return output.detach().clone()

    @staticmethod
    def _signature(values: Sequence[torch.Tensor]) -> tuple[object, ...]:
        return tuple((tuple(each.shape), str(each.dtype), str(each.device)) for each in values)


def copying_subjects(
    session: CaptureSession, arguments: list[torch.Tensor]
) -> dict[str, Callable[..., object]]:
    """Return subjects that copy arguments in and their result out, one of them the floor.

    Args:
        session: an open one.
        arguments: of a call.
    """

    def launch(first: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return first.neg()

    inputs = [value.clone() for value in arguments]
    capture = session.capture(lambda: launch(*inputs), subject="copying floor")
    graph, output = capture.graph, capture.result

    def copy_and_replay(*args: torch.Tensor) -> torch.Tensor:
        for buffer, value in zip(inputs, args, strict=True):
            buffer.copy_(value)
        graph.replay()
        copied: torch.Tensor = output.clone()
        return copied

    return {
        COPYING_FLOOR: copy_and_replay,
        "exact-signature runner, as engines write it": ExactSignatureRunner(graph, inputs, output),
        "graphed": graphed(launch, device=session.device),
        "graphed, results not copied": graphed(launch, device=session.device, copy_outputs=False),
    }


class Silent:
    """An observer that does nothing."""

    def observe(self, event: RuntimeEvent, /) -> None:
        """Do nothing."""


def subjects(
    name: str, tensors: int
) -> tuple[dict[str, Callable[..., object]], list[torch.Tensor], AbstractContextManager[object]]:
    """Return the measured subjects, ready to replay, a call's arguments, and the span of a step.

    Args:
        name: name of the device, ``fake`` or ``npu``.
        tensors: number of arguments of a call.
    """
    device: GraphDevice = _simulated_npu() if name == "npu" else FakeDevice()
    context = GraphContext()
    arguments = [torch.zeros(4, device=device.torch_device) for _ in range(tensors)]
    key = GraphKey(num_tokens=4)

    def launch(first: torch.Tensor, *_: torch.Tensor) -> None:
        if name == "npu":
            first.neg_()

    wrappers = {
        f"GraphedCallable, addresses checked: {check.value}": GraphedCallable(
            launch,
            device=device,
            context=context,
            run_mode=RunMode.FULL,
            name=check.value,
            address_check=check,
        )
        for check in AddressCheck
    }
    wrappers["GraphedCallable, addresses checked: always, observed"] = GraphedCallable(
        launch,
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="observed",
        observer=Silent(),
    )
    # Entered for the rest of the process, for all but the steps.
    context.run(RunMode.FULL, key).__enter__()
    with CaptureSession(device, context) as session:
        for wrapper in wrappers.values():
            wrapper(*arguments)
        graph = session.capture(lambda: launch(*arguments), subject="floor").graph
        copying = copying_subjects(session, arguments)
    for function in copying.values():
        function(*arguments)  # the first call of a signature captures
    engine_key = EngineKey(4, None, uniform=False, num_active_loras=0)
    addresses = [tensor.data_ptr() for tensor in arguments]
    callables: dict[str, Callable[..., object]] = {
        FLOOR: lambda *_: graph.replay(),
        "engine-style wrapper": EngineWrapper(engine_key, graph, None),
        "engine-style wrapper, debug mode": EngineWrapper(engine_key, graph, addresses),
        **wrappers,
        **copying,
    }
    return callables, arguments, context.run(RunMode.FULL, key)


def _simulated_npu() -> NpuDevice:
    os.environ["CANN_SIM_KERNELS"] = "null"
    cann_sim.activate()
    return NpuDevice()


def run_calls(function: Callable[..., object], arguments: Sequence[object], calls: int) -> None:
    """Call the given number of times."""
    for _ in range(calls):
        function(*arguments)


def run_steps(
    span: AbstractContextManager[object],
    function: Callable[..., object],
    arguments: Sequence[object],
    calls: int,
) -> None:
    """Call the given number of times, each call in its own span."""
    for _ in range(calls):
        with span:
            function(*arguments)


def measure(device: str, tensors: int, calls: int) -> list[Row]:
    """Return one row for each subject."""
    callables, arguments, span = subjects(device, tensors)
    runs: dict[str, Callable[..., None]] = {
        name: partial(run_calls, function) for name, function in callables.items()
    }
    for name, function in callables.items():
        if isinstance(function, GraphedCallable):
            runs[f"{name}, in its step"] = partial(run_steps, span, function)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            started = time.thread_time()
            run(arguments, calls)
            seconds[name].append((time.thread_time() - started) / calls)
            if device == "npu":
                NpuDevice().synchronize()
    least = {name: min(values) * 1e6 for name, values in seconds.items()}
    return [
        Row(
            device=device,
            tensors=tensors,
            subject=name,
            microseconds_per_call_least=round(least[name], 3),
            microseconds_per_call_median=round(statistics.median(values) * 1e6, 3),
            microseconds_above_floor=round(least[name] - least[FLOOR], 3),
            ratio_to_floor=round(least[name] / least[FLOOR], 2),
        )
        for name, values in seconds.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", default="1,5,17")
    parser.add_argument("--devices", default="fake,npu")
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    rows = [
        row
        for device in options.devices.split(",")
        for tensors in options.tensors.split(",")
        for row in measure(device, int(tensors), options.calls)
    ]
    table = Table("device", "tensors", "subject", "us a call", "us above the bare replay", "ratio")
    for row in rows:
        figures = (
            row.microseconds_per_call_least,
            row.microseconds_above_floor,
            row.ratio_to_floor,
        )
        texts = (f"{figure:.2f}" for figure in figures)
        table.add_row(row.device, str(row.tensors), row.subject, *texts)
    Console(width=140).print(table)
    out = Path("build/bench/graph-dispatch.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
