"""`graphed` compared with an exact-signature runner, `make_graphed_callables`, and static inputs.

Run by ``./nox -s bench -- one-function``; options as ``--tensors=1,17``, ``--calls=300``,
``--signatures=100``. It uses the real torch_npu over cann-sim. Subjects take turns in one process,
and time is that of the calling thread, in which no kernel runs. Kernels compute here, because
`graphed` compares the arguments of a first call before and after it, to find the ones that the
function writes. `make_graphed_callables` is torch_npu's version of torch.cuda's, which does not run
here. Meta's wheel calls `torch.cuda`: for the run, the four names that it needs are those of
`torch.npu`. `npu_compile.StaticInputs` are measured as a way to fill the buffers instead of
graphed's own copies.

The memory is that after as many signatures of some MiB each: allocated in buffers and pools, and
graphs alive. Prints Markdown tables and writes rows to build/bench/one-function.json. The counts of
instructions are those of ``graph-dispatch-instructions``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import inspect
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

import cann_sim

cann_sim.activate()

from npu_compile import InputSpec, StaticInputs, StepSize  # noqa: E402
from npu_graph_runtime import Graphed, NpuDevice  # noqa: E402
from one_function_users import (  # noqa: E402
    BreakableGraphs,
    ExactSignatureRunner,
    MadeGraphedCallables,
    by_graphed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 15
# Of floats: some MiB of input at each signature.
ROWS, COLUMNS = 1024, 1024
GRAPHED = "`graphed`"
RUNNER = "exact-signature runner"
MADE = "`make_graphed_callables` of torch_npu"
META = "`breakable_graph` of Meta's wheel"
STATIC = "`StaticInputs`, replay, clone"


def body(first: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    """A body with a few launches and one result."""
    return ((first + 1) * 2 - first).sum(1)


def makers(device: NpuDevice) -> dict[str, Callable[[], Callable[..., Any]]]:
    """Return a function for each subject that makes it."""
    make = importlib.import_module("torch_npu").npu.make_graphed_callables
    return {
        GRAPHED: lambda: by_graphed(body, device),
        RUNNER: lambda: ExactSignatureRunner(body, device),
        MADE: lambda: MadeGraphedCallables(body, make),
        META: lambda: BreakableGraphs(body),
    }


def lines_of(user: Callable[..., Any]) -> int:
    """Return the user's lines of code, without blank lines and docstrings."""
    source = inspect.getsource(user).splitlines()
    return sum(bool(line.strip()) and not line.strip().startswith('"""') for line in source)


def static_inputs(device: NpuDevice, arguments: list[torch.Tensor]) -> Callable[..., Any]:
    """Return a call whose buffers are filled by static inputs, the tensors being on the device."""
    size = StepSize(tokens=len(arguments[0]), sequences=1)
    specs = {
        f"x{number}": InputSpec(dtype=value.dtype, trailing_shape=tuple(value.shape[1:]))
        for number, value in enumerate(arguments)
    }
    inputs = StaticInputs(specs, largest=size, device=device)
    views = [inputs.views(size)[name] for name in specs]
    graph, _, output = ExactSignatureRunner(body, device).capture(tuple(views))

    def call(*args: torch.Tensor) -> torch.Tensor:
        inputs.load(dict(zip(specs, args, strict=True)), size=size)
        graph.replay()
        return output.clone()

    return call


def host_times(device: NpuDevice, tensors: int, calls: int) -> dict[str, float]:
    """Return the median of microseconds a call, by subject."""
    arguments = [torch.zeros(4, 8, device=device.torch_device) for _ in range(tensors)]
    subjects = {name: make() for name, make in makers(device).items()}
    subjects[STATIC] = static_inputs(device, arguments)
    for call in subjects.values():
        for _ in range(20):
            call(*arguments)
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(TURNS):
        for name, call in subjects.items():
            device.synchronize()
            started = time.thread_time()
            for _ in range(calls):
                call(*arguments)
            found[name].append((time.thread_time() - started) / calls * 1e6)
    device.synchronize()
    return {name: statistics.median(values) for name, values in found.items()}


def memory(device: NpuDevice, make: Callable[[], Callable[..., Any]], count: int) -> dict[str, Any]:
    """Return the memory of a subject after the given number of signatures."""
    gc.collect()
    device.synchronize()
    device.empty_cache()
    before = device.memory_figures()
    call = make()
    for number in range(count):
        call(torch.ones(ROWS - number, COLUMNS, device=device.torch_device))
    device.synchronize()
    gc.collect()
    device.empty_cache()
    after = device.memory_figures()
    if isinstance(call, Graphed):
        graphs = call.num_graphs
    else:
        graphs = len(getattr(call, "graphs", getattr(call, "callables", ())))
    found = {
        "graphs": graphs,
        "allocated_mib": round((after.allocated - before.allocated) / 2**20),
        "reserved_mib": round((after.reserved - before.reserved) / 2**20),
    }
    if isinstance(call, Graphed):
        call.release_all()
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", default="1,17")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--signatures", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = NpuDevice()
    counts = [int(text) for text in options.tensors.split(",")]
    torch_npu = importlib.import_module("torch_npu")
    with torch.no_grad(), contextlib.ExitStack() as names:
        for cuda, npu in (
            ("CUDAGraph", "NPUGraph"),
            ("graph", "graph"),
            ("graph_pool_handle", "graph_pool_handle"),
            ("synchronize", "synchronize"),
        ):
            names.enter_context(mock.patch.object(torch.cuda, cuda, getattr(torch_npu.npu, npu)))
        times = {tensors: host_times(device, tensors, options.calls) for tensors in counts}
        held = {
            name: memory(device, make, options.signatures) for name, make in makers(device).items()
        }
    users: dict[str, Callable[..., Any]] = {
        GRAPHED: by_graphed,
        RUNNER: ExactSignatureRunner,
        MADE: MadeGraphedCallables,
        META: BreakableGraphs,
    }
    rows: list[dict[str, Any]] = []
    for name in times[counts[0]]:
        user = users.get(name)
        rows.append(
            {
                "subject": name,
                "lines": None if user is None else lines_of(user),
                **{
                    f"time_ratio_{tensors}": round(found[name] / found[GRAPHED], 2)
                    for tensors, found in times.items()
                },
                **{f"us_{tensors}": round(times[tensors][name], 1) for tensors in counts},
                **held.get(name, {}),
            }
        )
    columns = ["subject", "lines", *(f"time_ratio_{tensors}" for tensors in counts)]
    columns += ["graphs", "allocated_mib", "reserved_mib"]
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for row in rows:
        print("| " + " | ".join(str(row.get(column) or "-") for column in columns) + " |")
    out = Path("build/bench/one-function.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
