"""Host cost of a launch on cann-sim, against the same call with functions that return 0.

Run by `nox -s bench -- sim-launch`. Options (as `--name=value`): `--task-queues=0,1`,
`--rounds=60`, `--calls=200`. Each task queue setting is a process of its own, with kernels that do
nothing. Prints a table and writes rows `{operator, task_queue, subject, host_microseconds,
done_microseconds, processor_microseconds, ratio_host, ratio_done, ratio_processor}` to
build/bench/sim-launch.json.

The floor (sim_launch_floor.cpp) is the same process with the operator's two functions replaced by
`return 0`; simulator and floor take turns. *Host* is the time until the calls have returned, *done*
until the device has run them, *processor* what all threads of the process used. Times are those of
a call, the least of the rounds, to which other work of the machine added nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

# By name: it is a peer here, and banned elsewhere.
TORCH_NPU = "torch_npu"
SIMULATED = "libopapi_simulated.so"
FUNCTIONS = 8
SUBJECTS = ("return 0", "cann-sim")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; ratios are to the floor."""

    operator: str
    task_queue: int
    subject: str
    host_microseconds: float
    done_microseconds: float
    processor_microseconds: float
    ratio_host: float
    ratio_done: float
    ratio_processor: float


def make_operators() -> dict[str, Callable[[], object]]:
    """Return the calls by name; their results are preallocated."""
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)
    value = torch.zeros(16, 1024, dtype=torch.bfloat16, device="npu")
    result = torch.empty_like(value)
    weight = torch.zeros(1024, dtype=torch.bfloat16, device="npu")
    return {
        "add": functools.partial(torch.add, value, value, out=result),
        "mul": functools.partial(torch.mul, value, value, out=result),
        "rms_norm": functools.partial(torch_npu.npu_rms_norm, value, weight),
        "attention, 16 lengths": make_attention(16),
        "attention, 256 lengths": make_attention(256),
    }


def make_attention(sequences: int) -> Callable[[], object]:
    """Return FIA on a paged cache with a list of lengths for queries and one for keys."""
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)
    query = torch.zeros(sequences, 32, 128, dtype=torch.bfloat16, device="npu")
    cache = torch.zeros(sequences * 4, 128, 8 * 128, dtype=torch.bfloat16, device="npu")
    arguments = {
        "query": query,
        "key": cache,
        "value": cache,
        "atten_mask": torch.zeros(2048, 2048, dtype=torch.int8, device="npu"),
        "block_table": torch.zeros(sequences, 4, dtype=torch.int32, device="npu"),
        "actual_seq_lengths": list(range(1, sequences + 1)),
        "actual_seq_lengths_kv": [500] * sequences,
        "input_layout": "TND",
        "block_size": 128,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "scale": 128**-0.5,
        "sparse_mode": 3,
    }
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(**arguments)
    out = [torch.empty_like(query), torch.empty(1, dtype=torch.bfloat16, device="npu")]
    operator = torch.ops.npu.npu_fused_infer_attention_score.out
    return functools.partial(operator, **arguments, workspace=workspace, out=out)


def build_floor(folder: Path) -> None:
    """Put the floor into the folder, and the simulated library under the name it depends on."""
    from cann_sim import build

    (folder / "empty.cpp").write_text("")
    compiler = [os.environ.get("CXX") or "g++", "-O2", "-std=c++17", "-shared", "-fPIC"]
    # The floor is linked to an empty library, in whose place the simulated one is found later.
    empty = folder / SIMULATED
    named = [f"-Wl,-soname,{SIMULATED}", "-o", str(empty)]
    subprocess.run([*compiler, str(folder / "empty.cpp"), *named], check=True)
    source = Path(__file__).with_name("sim_launch_floor.cpp")
    named = ["-Wl,-soname,libopapi.so", "-o", str(folder / "libopapi.so")]
    linked = ["-Wl,--no-as-needed", f"-L{folder}", f"-l:{SIMULATED}", "-ldl"]
    subprocess.run([*compiler, str(source), *named, *linked], check=True)
    empty.unlink()
    paths = build().library_paths("value")
    empty.symlink_to(next(path for path in paths if path.name == "libopapi.so"))


def measure(call: Callable[[], object], calls: int) -> tuple[float, float, float]:
    """Return the microseconds of a call: host, done, processor."""
    npu = importlib.import_module(TORCH_NPU).npu
    for _ in range(5):
        call()
    npu.synchronize()
    used = time.process_time()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    returned = time.perf_counter()
    npu.synchronize()
    done = time.perf_counter()
    seconds = (returned - begin, done - begin, time.process_time() - used)
    host, until_done, processor = (each * 1e6 / calls for each in seconds)
    return host, until_done, processor


def measure_process(rounds: int, calls: int) -> None:
    """Measure all operators in this process and print the rows as JSON."""
    npu = importlib.import_module(TORCH_NPU).npu
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    floor = ctypes.CDLL("libopapi.so")

    def choose(subject: str) -> None:
        zero = int(subject == SUBJECTS[0])
        if floor.floor_choose(SIMULATED.encode(), zero) != FUNCTIONS:
            raise RuntimeError("the floor did not find the simulated operators")

    choose(SUBJECTS[1])
    rows = []
    for operator, call in make_operators().items():
        times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SUBJECTS}
        gc.collect()
        gc.disable()
        for number in range(rounds + 1):
            for subject in SUBJECTS:
                choose(subject)
                measured = measure(call, calls)
                if number > 0:
                    times[subject].append(measured)
        gc.enable()
        choose(SUBJECTS[1])
        least = {
            subject: [min(column) for column in zip(*each, strict=True)]
            for subject, each in times.items()
        }
        rows += [make_row(operator, subject, least) for subject in SUBJECTS]
    print("ROWS", json.dumps([asdict(row) for row in rows]), flush=True)


def make_row(operator: str, subject: str, least: dict[str, list[float]]) -> Row:
    """Return the row of one subject."""
    host, done, processor = least[subject]
    floor_host, floor_done, floor_processor = least[SUBJECTS[0]]
    return Row(
        operator=operator,
        task_queue=int(os.environ["TASK_QUEUE_ENABLE"]),
        subject=subject,
        host_microseconds=round(host, 2),
        done_microseconds=round(done, 2),
        processor_microseconds=round(processor, 2),
        ratio_host=round(host / floor_host, 3),
        ratio_done=round(done / floor_done, 3),
        ratio_processor=round(processor / floor_processor, 3),
    )


def run_processes(options: argparse.Namespace) -> list[Row]:
    """Run one process for each task queue setting and return all rows."""
    from cann_sim import launch_environment

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        build_floor(Path(folder))
        environment = launch_environment({**os.environ, "CANN_SIM_KERNELS": "null"})
        environment["LD_LIBRARY_PATH"] = folder + os.pathsep + environment["LD_LIBRARY_PATH"]
        script = [sys.executable, __file__, "--in-this-process"]
        script += [f"--rounds={options.rounds}", f"--calls={options.calls}"]
        for task_queue in options.task_queues.split(","):
            result = subprocess.run(
                script,
                env={**environment, "TASK_QUEUE_ENABLE": task_queue},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=1500,
            )
            line = next(line for line in result.stdout.splitlines() if line.startswith("ROWS "))
            rows += [Row(**row) for row in json.loads(line.removeprefix("ROWS "))]
    return rows


def print_table(rows: list[Row]) -> None:
    """Print the rows, one table for each setting."""
    for task_queue in dict.fromkeys(row.task_queue for row in rows):
        title = f"TASK_QUEUE_ENABLE={task_queue}, microseconds a call and ratio to the floor"
        table = Table("operator", "subject", "host", "", "done", "", "processor", "", title=title)
        for row in rows:
            if row.task_queue == task_queue:
                values = (
                    (row.host_microseconds, row.ratio_host),
                    (row.done_microseconds, row.ratio_done),
                    (row.processor_microseconds, row.ratio_processor),
                )
                cells = [
                    text for time_, ratio in values for text in (f"{time_:.1f}", f"{ratio:.2f}")
                ]
                table.add_row(row.operator, row.subject, *cells)
        Console(width=110).print(table)


def main() -> None:
    """Run the benchmark, or one process of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task-queues", default="0,1")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--in-this-process", action="store_true")
    options = parser.parse_args()
    if options.in_this_process:
        measure_process(options.rounds, options.calls)
        return
    rows = run_processes(options)
    print_table(rows)
    path = Path(__file__).parent.parent / "build" / "bench" / "sim-launch.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
