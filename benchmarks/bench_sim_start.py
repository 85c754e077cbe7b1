"""What cann-sim adds to the start of a program.

Run by `nox -s bench -- sim-start`. Options (as `--name=value`): `--rounds=5`, `--clean`. Prints a
table and writes rows `{what, seconds, processor_seconds}` to build/bench/sim-start.json: the least
of the rounds, each in a process of its own.

*activate* is `cann_sim.activate()` with its import, after `import torch`, so that torch's own
libraries, which `import torch_npu` needs as well, are loaded before. *import torch_npu* is what
follows. *cann-sim run* is what the command takes before the program begins. With `--clean` the
native libraries are also built from nothing, into a cache of their own, on as many cores as there
are: once as a first program does, which waits for what it needs while the rest is compiled behind
it, and once in one go. `processor_seconds` is what the compilers and the program used, which is to
be divided by the number of cores where the machine does something else as well.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

PROGRAM = """
import json, os, time
import torch
begin = time.perf_counter()
import cann_sim
cann_sim.activate()
active = time.perf_counter()
import torch_npu
end = time.perf_counter()
print("SECONDS", json.dumps({"activate": active - begin, "import torch_npu": end - active}))
"""

# The processor seconds do not hold those of the process that compiles the rest.
FIRST_PROGRAM = """
import json, os, time
begin = time.perf_counter()
def row(what, own):
    used = round(sum(os.times()[:4]), 1) if own else None
    seconds = round(time.perf_counter() - begin, 1)
    print("ROW", json.dumps({"what": what, "seconds": seconds, "processor_seconds": used}))
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch_npu.npu.set_compile_mode(jit_compile=False)
tensor = torch.ones(4).npu()
assert tensor.cpu().sum() == 4
row("first use: first tensor on the device", True)
assert str((tensor * 2 + 1).cpu()) == "tensor([3., 3., 3., 3.])"
row("first use: first arithmetic", False)
str(tensor)
row("first use: first tensor printed", False)
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    what: str
    seconds: float
    processor_seconds: float | None = None


def measure_start() -> dict[str, float]:
    """Return the seconds of each part of one start."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("SECONDS "))
    seconds: dict[str, float] = json.loads(line.removeprefix("SECONDS "))
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "cann_sim", "run", "--", "true"], check=True)
    seconds["cann-sim run"] = time.perf_counter() - begin
    return seconds


def measure_first_use() -> list[Row]:
    """Run a first program with an empty cache, and wait for the compilation in the background."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CANN_SIM_CACHE": folder,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TASK_QUEUE_ENABLE": "0",
        }
        done = subprocess.run(
            [sys.executable, "-c", FIRST_PROGRAM],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = (line for line in done.stdout.splitlines() if line.startswith("ROW "))
        rows = [Row(**json.loads(line.removeprefix("ROW "))) for line in found]
        begin = time.perf_counter()
        # Waits for the process that compiles the rest.
        command = [sys.executable, "-m", "cann_sim", "build"]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = rows[-1].seconds + time.perf_counter() - begin
        rows.append(Row(what="first use: all is built", seconds=round(seconds, 1)))
    return rows


def measure_clean_build() -> Row:
    """Build the native libraries into an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        command = [sys.executable, "-m", "cann_sim", "build"]
        subprocess.run(command, env={**os.environ, "CANN_SIM_CACHE": folder}, check=True)
        seconds = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(
        what=f"build from clean, {os.cpu_count()} cores",
        seconds=round(seconds, 1),
        processor_seconds=round(used, 1),
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clean", action="store_true")
    options = parser.parse_args()
    rows = [*measure_first_use(), measure_clean_build()] if options.clean else []
    measure_start()  # builds the libraries where they are not in the cache
    starts = [measure_start() for _ in range(options.rounds)]
    rows += [Row(what=what, seconds=round(min(s[what] for s in starts), 4)) for what in starts[0]]
    table = Table("what", "seconds", "processor seconds", title="Start of a program on cann-sim")
    for row in rows:
        used = "" if row.processor_seconds is None else f"{row.processor_seconds:.0f}"
        table.add_row(row.what, f"{row.seconds:.3f}", used)
    Console(width=80).print(table)
    path = Path(__file__).parent.parent / "build" / "bench" / "sim-start.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
