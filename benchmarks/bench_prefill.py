"""Host cost of a prefill step of Qwen3 in the modes that capture it, beside eager.

Run by ``./nox -s bench -- prefill``; options after the name, as ``--layers=28,64``,
``--tokens=256,1024``, ``--rounds=6``. Kernels of the simulator do nothing and the task queue is
off, so only the host is measured. All modes run turn by turn in one process for each number of
layers; the first steps of a turn are not counted, and each begins with an empty device. A batch
is a chunk of each of some sequences, a few tokens less than the capture size, so that it is padded.

Prints a table and writes rows ``{layers, tokens, sequences, subject, calls_per_step,
microseconds_per_step_median, ratio_to_eager, load_average}`` to build/bench/prefill.json. Calls are
launches, replays and task updates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import cann_sim

os.environ["CANN_SIM_KERNELS"] = "null"
os.environ["TASK_QUEUE_ENABLE"] = "0"
cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine import StepBatch  # noqa: E402
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner  # noqa: E402
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("eager", "piecewise", "breakable", "full")
STEPS_PER_TURN, STEPS_TO_WARM_UP = 8, 3
SEQUENCES = 8
MAX_LENGTH = 1024
BLOCKS_PER_SEQUENCE = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    layers: int
    tokens: int
    sequences: int
    subject: str
    calls_per_step: int
    microseconds_per_step_median: float
    ratio_to_eager: float
    load_average: float


def batches(tokens: int) -> Iterator[StepBatch]:
    """Yield batches of chunks whose places in their sequences differ from step to step."""
    table = torch.arange(1, 1 + SEQUENCES * BLOCKS_PER_SEQUENCE, dtype=torch.int32)
    table = table.view(SEQUENCES, BLOCKS_PER_SEQUENCE)
    chunk = tokens // SEQUENCES - 1
    for start in range(0, MAX_LENGTH - chunk, 61):
        positions = torch.arange(start, start + chunk)
        slots = table[:, positions // 128] * 128 + positions % 128
        yield StepBatch(
            input_ids=torch.ones(SEQUENCES * chunk, dtype=torch.int32),
            positions=positions.repeat(SEQUENCES),
            slot_mapping=slots.flatten().to(torch.int32),
            block_table=table,
            query_lengths=(chunk,) * SEQUENCES,
            kv_lengths=(start + chunk,) * SEQUENCES,
        )


def measure(folder: Path, layers: int, sizes: list[int], rounds: int) -> list[Row]:
    """Return a row for each mode and size."""
    device = NpuDevice()
    runners = {
        mode: CompiledModelRunner.load(
            folder,
            {"mode": mode, "prefill_capture_sizes": sizes, "capture_sizes": [1]},
            device=device,
            num_blocks=1 + SEQUENCES * BLOCKS_PER_SEQUENCE,
            max_length=MAX_LENGTH,
            max_num_sequences=SEQUENCES,
        )
        for mode in MODES
    }
    for runner in runners.values():
        runner.capture()
    rows: list[Row] = []
    for tokens in sizes:
        steps = {mode: cycle(list(batches(tokens))) for mode in MODES}
        taken: dict[str, list[float]] = {mode: [] for mode in MODES}
        calls: dict[str, int] = {}
        for _ in range(rounds):
            for mode, runner in runners.items():
                for number in range(STEPS_PER_TURN):
                    batch = next(steps[mode])
                    device.synchronize()
                    before = cann_sim.counters() if number == 0 else None
                    began = time.perf_counter()
                    runner.prefill(batch)
                    elapsed = time.perf_counter() - began
                    device.synchronize()
                    if before is not None:
                        made = cann_sim.counters() - before
                        calls[mode] = made.launches + made.replays + made.task_updates
                    if number >= STEPS_TO_WARM_UP:
                        taken[mode].append(elapsed * 1e6)
        medians = {mode: statistics.median(values) for mode, values in taken.items()}
        rows += [
            Row(
                layers=layers,
                tokens=tokens,
                sequences=SEQUENCES,
                subject=mode,
                calls_per_step=calls[mode],
                microseconds_per_step_median=round(median, 1),
                ratio_to_eager=round(medians["eager"] / median, 2),
                load_average=round(os.getloadavg()[0], 1),
            )
            for mode, median in medians.items()
        ]
    for runner in runners.values():
        runner.close()
    return rows


def run_process(layers: int, options: argparse.Namespace) -> list[Row]:
    """Measure in a new process, because compiled models of other depths stay in memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, __file__, f"--layers={layers}", f"--into={path}"]
        command += [f"--tokens={options.tokens}", f"--rounds={options.rounds}"]
        subprocess.run(command, check=True, timeout=3000)
        return [Row(**row) for row in json.loads(path.read_text())]


def print_table(rows: list[Row]) -> None:
    """Print all rows."""
    load = f"load average at most {max(row.load_average for row in rows)} on {os.cpu_count()} cores"
    title = f"prefill step of {SEQUENCES} sequences on the host, null kernels"
    table = Table("subject", title=title, caption=load)
    for name in ("layers", "tokens", "calls", "us", "eager / subject"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.subject,
            str(row.layers),
            str(row.tokens),
            str(row.calls_per_step),
            f"{row.microseconds_per_step_median:.0f}",
            f"{row.ratio_to_eager:.2f}",
        )
    Console(width=90).print(table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="28,64")
    parser.add_argument("--tokens", default="256,1024")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--into", help="measure in this process and write the rows there")
    options = parser.parse_args()
    if options.into:
        layers, sizes = int(options.layers), [int(each) for each in options.tokens.split(",")]
        with tempfile.TemporaryDirectory() as temporary:
            shape = TinyShape(num_layers=layers)
            folder = write_tiny_checkpoint(Path(temporary), shape=shape)
            rows = measure(folder, layers, sizes, options.rounds)
        Path(options.into).write_text(json.dumps([asdict(row) for row in rows]))
        return
    rows = [
        row for layers in options.layers.split(",") for row in run_process(int(layers), options)
    ]
    print_table(rows)
    target = Path("build/bench/prefill.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
