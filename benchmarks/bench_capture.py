"""Host time to capture every size of a Qwen3 decoder, by mode; kernels of the simulator do nothing.

Run by ``./nox -s bench -- capture``; options after the name, as ``--layers=64``, ``--largest=256``:
the sizes are vLLM's defaults up to it. Prints a table and writes rows ``{case, layers, sizes,
subject, graphs, seconds, ratio_to_floor}`` to build/bench/capture.json. The floor is one eager
step of every size, as a capture begins with one. Compilation is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import cann_sim

os.environ["CANN_SIM_KERNELS"] = "null"
# Pieces of all sizes take more streams than a device has; here they are captured to be timed.
os.environ["CANN_SIM_STREAMS"] = "8192"
cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from npu_graph_runtime import NpuDevice, vllm_capture_sizes  # noqa: E402
from qwen3_engine import StepBatch  # noqa: E402
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner  # noqa: E402
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint  # noqa: E402

CAPTURING_MODES = ("full", "piecewise", "breakable")
MAX_LENGTH = 128


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    sizes: int
    subject: str
    graphs: int
    seconds: float
    ratio_to_floor: float


def batch_of(rows: int) -> StepBatch:
    """Return a decode step of sequences of one token."""
    blocks = torch.arange(1, 1 + rows, dtype=torch.int32)
    return StepBatch(
        input_ids=torch.ones(rows, dtype=torch.int32),
        positions=torch.zeros(rows, dtype=torch.int64),
        slot_mapping=blocks * 128,
        block_table=blocks.unsqueeze(1),
        query_lengths=(1,) * rows,
        kv_lengths=(1,) * rows,
    )


def load(folder: Path, device: NpuDevice, mode: str, sizes: list[int]) -> CompiledModelRunner:
    """Return a runner whose model is compiled for eager steps."""
    runner = CompiledModelRunner.load(
        folder,
        {"mode": mode, "capture_sizes": sizes},
        device=device,
        num_blocks=1 + sizes[-1],
        max_length=MAX_LENGTH,
    )
    if mode == "eager":
        runner.decode(batch_of(sizes[-1]))
        runner.decode(batch_of(sizes[0]))
        device.synchronize()
    return runner


def capture(runner: CompiledModelRunner, num_sizes: int) -> float:
    """Capture, and return the seconds without compilation.

    Dynamo compiles during the first size, and for size 1 again: these count as the median does.
    """
    seconds: list[float] = []
    begun, compiled = time.perf_counter(), 0

    def note(*_: int) -> None:
        nonlocal begun, compiled
        if len(runner.compiled.reports) == compiled:
            seconds.append(time.perf_counter() - begun)
        begun, compiled = time.perf_counter(), len(runner.compiled.reports)

    runner.capture(on_captured=note)
    return sum(seconds) + statistics.median(seconds) * (num_sizes - len(seconds))


def measure(folder: Path, layers: int, sizes: list[int]) -> list[Row]:
    """Return the row of the floor, followed by one row for each mode."""
    device = NpuDevice()
    eager = load(folder, device, "eager", sizes)
    begun = time.perf_counter()
    for size in sizes:
        eager.decode(batch_of(size))
    device.synchronize()
    floor = time.perf_counter() - begun
    eager.close()
    found = {"eager steps": (0, floor)}
    for mode in CAPTURING_MODES:
        runner = load(folder, device, mode, sizes)
        seconds = capture(runner, len(sizes))
        found[mode] = (runner.compiled.num_captured_graphs, seconds)
        runner.close()
    return [
        Row(
            case="capture of all sizes, kernels do nothing",
            layers=layers,
            sizes=len(sizes),
            subject=subject,
            graphs=graphs,
            seconds=round(seconds, 3),
            ratio_to_floor=round(seconds / floor, 2),
        )
        for subject, (graphs, seconds) in found.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--largest", type=int, default=256)
    options = parser.parse_args()
    sizes = list(vllm_capture_sizes(options.largest, scale=1))
    with tempfile.TemporaryDirectory() as temporary:
        shape = TinyShape(num_layers=options.layers)
        rows = measure(write_tiny_checkpoint(Path(temporary), shape=shape), options.layers, sizes)
    table = Table(title=f"capture of {len(sizes)} sizes, {options.layers} layers, null kernels")
    for name in ("subject", "device graphs", "seconds", "to the floor"):
        table.add_column(name, justify="left" if name == "subject" else "right")
    for row in rows:
        table.add_row(
            row.subject, str(row.graphs), f"{row.seconds:.2f}", f"{row.ratio_to_floor:.2f}"
        )
    Console().print(table)
    target = Path("build/bench/capture.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
