"""Instructions of replaying a captured callable: bench_graph_dispatch.py without the noise.

Run by ``./nox -s bench -- graph-dispatch-instructions``; options as ``--tensors=1,17``. Needs
Valgrind with its headers (Debian and Ubuntu: `apt-get install valgrind`); without it the benchmark
prints this and measures nothing. Counts the instructions of the calling thread in a call. Prints a
table and writes rows ``{tensors, subject, instructions_per_call, instructions_above_floor}`` to
build/bench/graph-dispatch-instructions.json.

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

from bench_graph_dispatch import FLOOR, subjects
from callgrind_counts import count_subjects

CALLS = 200
CALLS_TO_WARM_UP = 50


@dataclass(frozen=True, kw_only=True)
class Row:
    """One count."""

    tensors: int
    subject: str
    instructions_per_call: int
    instructions_above_floor: int


def run_calls(requests: str, tensors: int, names: Path) -> None:
    """Run counted calls of all subjects; Callgrind writes a file for each."""
    callgrind = ctypes.CDLL(requests)
    callables, arguments, _ = subjects("fake", tensors)
    names.write_text(json.dumps(list(callables)), encoding="utf-8")
    gc.collect()
    gc.disable()
    for position, function in enumerate(callables.values()):
        for _ in range(CALLS_TO_WARM_UP):
            function(*arguments)
        callgrind.prepare_to_count()
        callgrind.toggle_counting()
        for _ in range(CALLS):
            function(*arguments)
        callgrind.toggle_counting()
        callgrind.write_counts(f"subject {position}".encode())


def count(tensors: int) -> list[Row]:
    """Run one process of all subjects under Callgrind and return its rows."""
    with tempfile.TemporaryDirectory() as name:
        written = Path(name) / "names"
        options = (f"--tensors={tensors}", f"--names={written}")
        counts = count_subjects(__file__, *options, on_simulator=False)
        names: list[str] = json.loads(written.read_text(encoding="utf-8"))
    calls = {name: counts[position] // CALLS for position, name in enumerate(names)}
    return [
        Row(
            tensors=tensors,
            subject=name,
            instructions_per_call=number,
            instructions_above_floor=number - calls[FLOOR],
        )
        for name, number in calls.items()
    ]


def main() -> None:
    """Run the benchmark, or the calls that are counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", default="1,17")
    parser.add_argument("--requests")
    parser.add_argument("--names", type=Path)
    options = parser.parse_args()
    if options.requests is not None:
        run_calls(options.requests, int(options.tensors), options.names)
        return
    if shutil.which("valgrind") is None:
        print("graph-dispatch-instructions: nothing was counted; it needs Valgrind and its headers")
        return
    rows = [row for text in options.tensors.split(",") for row in count(int(text))]
    table = Table("tensors", "subject", "instructions a call", "above the bare replay")
    for row in rows:
        figures = (row.instructions_per_call, row.instructions_above_floor)
        table.add_row(str(row.tensors), row.subject, *(f"{figure:,}" for figure in figures))
    Console(width=120).print(table)
    out = Path("build/bench/graph-dispatch-instructions.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
