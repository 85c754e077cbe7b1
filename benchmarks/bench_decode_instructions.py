"""Instructions of a decode step in some modes: bench_decode.py without the noise.

Run by ``./nox -s bench -- decode-instructions``; options as ``--layers=2,4``, ``--sequences=8``,
``--steps=4``. Needs Valgrind with its headers (Debian and Ubuntu: `apt-get install valgrind`);
without it the benchmark prints this and measures nothing. Valgrind is some fifty times slower than
the machine, so layers are few: the count grows by the same number per layer, so you can extrapolate
from two shallow models. The peer that compiles with npugraph_ex is left out for that reason. Counts
the instructions of the calling thread, with the task queue off. Prints a table and writes rows
``{layers, sequences, subject, instructions_per_step, ratio_to_eager}`` to
build/bench/decode-instructions.json.

The number of instructions does not include effects of caches, and is the same on a busy machine.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench_decode import batches, make_peers, make_runners
from callgrind_counts import count_subjects
from npu_graph_runtime import NpuDevice
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

STEPS_TO_WARM_UP = 5
MODES = ("eager", "piecewise", "breakable", "full")
PEERS = ("peer: NPUGraph.update",)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One count."""

    layers: int
    sequences: int
    subject: str
    instructions_per_step: int
    ratio_to_eager: float


def run_steps(requests: str, layers: int, sequences: int, steps: int) -> None:
    """Run counted steps of all subjects; Callgrind writes a file for each."""
    callgrind = ctypes.CDLL(requests)
    device = NpuDevice()
    with tempfile.TemporaryDirectory() as temporary:
        shape = TinyShape(num_layers=layers)
        folder = write_tiny_checkpoint(Path(temporary), shape=shape)
        runners = make_runners(folder, sequences, MODES)
        peers = make_peers(folder, sequences, PEERS)
    gc.collect()
    gc.disable()
    subjects = {**runners, **peers}
    for position, subject in enumerate(subjects.values()):
        given = batches(sequences)
        for _ in range(STEPS_TO_WARM_UP):
            subject.decode(next(given))
            device.synchronize()
        callgrind.prepare_to_count()
        for _ in range(steps):
            batch = next(given)
            callgrind.toggle_counting()
            subject.decode(batch)
            callgrind.toggle_counting()
            device.synchronize()
        callgrind.write_counts(f"subject {position}".encode())


def count(layers: int, sequences: int, steps: int) -> list[Row]:
    """Run one process of all subjects under Callgrind and return its rows."""
    options = (f"--layers={layers}", f"--sequences={sequences}", f"--steps={steps}")
    counts = count_subjects(__file__, *options, on_simulator=True)
    return [
        Row(
            layers=layers,
            sequences=sequences,
            subject=subject,
            instructions_per_step=round(counts[position] / steps),
            ratio_to_eager=round(counts[0] / counts[position], 2),
        )
        for position, subject in enumerate((*MODES, *PEERS))
    ]


def main() -> None:
    """Run the benchmark, or the steps that are counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="2,4")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--requests")
    options = parser.parse_args()
    if options.requests is not None:
        run_steps(options.requests, int(options.layers), options.sequences, options.steps)
        return
    if shutil.which("valgrind") is None:
        print("decode-instructions: nothing was counted; it needs Valgrind and its headers")
        return
    rows = [
        row
        for layers in options.layers.split(",")
        for row in count(int(layers), options.sequences, options.steps)
    ]
    table = Table("layers", "subject", "instructions a step", "eager / subject")
    for row in rows:
        figures = (f"{row.instructions_per_step:,}", f"{row.ratio_to_eager:.2f}")
        table.add_row(str(row.layers), row.subject, *figures)
    Console(width=100).print(table)
    target = Path("build/bench/decode-instructions.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
