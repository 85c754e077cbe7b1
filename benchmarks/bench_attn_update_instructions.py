"""Instructions of updating attention arguments: bench_attn_update.py without the noise.

Run by `nox -s bench -- attn-update-instructions`. Options (as `--name=value`): `--layers=64`,
`--sequences=16,256`, `--steps=4`. Needs Valgrind with its headers (Debian and Ubuntu: `apt-get
install valgrind`); without it the benchmark prints this and measures nothing. Counts the
instructions of the calling thread in a step, with kernels that do nothing and the task queue off.
Work of a worker thread is not counted, because the caller saves it. Prints a table and writes rows
`{case, layers, sequences, task_queue, subject, instructions_per_step, ratio_to_floor}` to
build/bench/attn-update-instructions.json.

The number of instructions does not include effects of caches, and is the same on a busy machine.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import importlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench_attn_update import (
    FLOOR,
    TORCH_NPU,
    Workload,
    make_floor,
    make_npu_graph_update,
    make_ours,
    make_protocol,
    make_workload,
)
from callgrind_counts import count_subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STEPS_TO_WARM_UP = 5
SUBJECTS: Mapping[str, Callable[[Workload], Callable[[int], None]]] = {
    FLOOR: make_floor,
    "Python loop (as vLLM-Ascend)": functools.partial(make_protocol, fused=False),
    "NPUGraph.update": make_npu_graph_update,
    "fused C call in a Python loop": functools.partial(make_protocol, fused=True),
    "attn_update, fused C call": make_ours,
    "attn_update, kernels from Python": functools.partial(make_ours, updater="kernels"),
    "attn_update, native": functools.partial(make_ours, updater="native"),
    "attn_update, kernels from Python, worker thread": functools.partial(
        make_ours, updater="kernels", worker=True
    ),
    "attn_update, native, worker thread": functools.partial(
        make_ours, updater="native", worker=True
    ),
    "attn_update, native, 8 keys": functools.partial(make_ours, updater="native", keys=8),
    "attn_update, native, block table rebound": functools.partial(
        make_ours, updater="native", tables=2
    ),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One count."""

    case: str
    layers: int
    sequences: int
    task_queue: int
    subject: str
    instructions_per_step: int
    ratio_to_floor: float


def run_steps(requests: str, layers: int, sequences: int, steps: int) -> None:
    """Run counted steps of all subjects; Callgrind writes a file for each."""
    npu = importlib.import_module(TORCH_NPU).npu
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    # The floor looks for it among what is loaded, which is later under Valgrind.
    ctypes.CDLL("libnnopbase.so")
    callgrind = ctypes.CDLL(requests)
    workload = make_workload(layers, sequences)
    with npu.stream(workload.stream):
        subjects = [make(workload) for make in SUBJECTS.values()]
        gc.collect()
        gc.disable()
        for position, step in enumerate(subjects):
            for number in range(STEPS_TO_WARM_UP):
                step(number)
                npu.synchronize()
            callgrind.prepare_to_count()
            for number in range(steps):
                callgrind.toggle_counting()
                step(STEPS_TO_WARM_UP + number)
                callgrind.toggle_counting()
                npu.synchronize()
            callgrind.write_counts(f"subject {position}".encode())


def count(layers: int, sequences: int, steps: int) -> list[Row]:
    """Run one process of all subjects under Callgrind and return its rows."""
    options = (f"--layers={layers}", f"--sequences={sequences}", f"--steps={steps}")
    counts = count_subjects(__file__, *options, on_simulator=True)
    subjects = list(SUBJECTS)
    floor = counts[subjects.index(FLOOR)]
    return [
        Row(
            case="update",
            layers=layers,
            sequences=sequences,
            task_queue=0,
            subject=subject,
            instructions_per_step=round(counts[position] / steps),
            ratio_to_floor=round(counts[position] / floor, 3),
        )
        for position, subject in enumerate(subjects)
    ]


def print_table(rows: list[Row]) -> None:
    """Print the rows, one table for each number of sequences."""
    for sequences in dict.fromkeys(row.sequences for row in rows):
        title = f"{rows[0].layers} layers, {sequences} sequences, instructions"
        table = Table("subject", "a step", "of floor", title=title)
        for row in rows:
            if row.sequences == sequences:
                ratio = f"{row.ratio_to_floor:.2f}"
                table.add_row(row.subject, f"{row.instructions_per_step:,}", ratio)
        Console(width=100).print(table)


def main() -> None:
    """Run the benchmark, or the steps that are counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--sequences", default="16,256")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--requests")
    options = parser.parse_args()
    if options.requests is not None:
        run_steps(options.requests, options.layers, int(options.sequences), options.steps)
        return
    if shutil.which("valgrind") is None:
        print("attn-update-instructions: nothing was counted; it needs Valgrind and its headers")
        return
    rows = [
        row
        for sequences in options.sequences.split(",")
        for row in count(options.layers, int(sequences), options.steps)
    ]
    print_table(rows)
    path = Path(__file__).parent.parent / "build" / "bench" / "attn-update-instructions.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
