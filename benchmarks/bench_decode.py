"""Host cost and operator launches of a Qwen3 decode step in every compile mode, and in its parts.

Run by ``./nox -s bench -- decode``; options after the name, as ``--layers=28``, ``--sequences=8``,
``--rounds=6``, ``--task-queues=0,1``. Kernels of the simulator do nothing, so only the host is
measured. Each setting of torch_npu's task queue has a process and a table of its own: with
``TASK_QUEUE_ENABLE=0`` the calling thread launches. With 1, torch_npu's default, it passes launches
to another thread, and the times are those of the calling thread alone, which waits if the other
thread has no core to itself. The table shows the load of the machine.

In a process all modes and the peers (decode_peers.py) take turns, so noise of the machine affects
them equally. A turn begins with steps that are not counted, so that no subject is affected by the
cache contents of the previous one, as in a decode loop. Each step begins with an idle device. Then
come steps of three modes in parts (decode_parts.py), with the floor of each part.

Prints tables and writes rows ``{case, task_queue, load_average, layers, sequences, subject,
launches_per_step, microseconds_per_step_median, ratio_to_eager, floor_microseconds,
ratio_to_floor}`` to build/bench/decode.json. Ratios are of medians: eager over subject, subject
over its floor. Missing values are null: a part has no launches and no ratio to eager. The floor of
a whole step is the sum of the floors of its parts. Instructions: bench_decode_instructions.py.

The figure of the README: ``./nox -s bench -- decode --layers=64 --sequences=8 --task-queues=0
--plot=docs/pictures/host-time.svg``. With ``--plot`` only the steps that it shows are measured.
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
cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from decode_figure import DRAWN, draw_host_time  # noqa: E402
from decode_parts import DEVICE_REPLAY, PARTS, floors, watch_parts  # noqa: E402
from decode_peers import CompiledByNpugraphEx, UpdatedGraph  # noqa: E402
from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine import StepBatch  # noqa: E402
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner  # noqa: E402
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODES = ("eager", "piecewise", "breakable", "full", "torchair", "measured")
MODES_IN_PARTS = ("piecewise", "breakable", "full")
PEERS: Mapping[str, type[UpdatedGraph | CompiledByNpugraphEx]] = {
    "peer: NPUGraph.update": UpdatedGraph,
    "peer: torch.compile, npugraph_ex": CompiledByNpugraphEx,
}
# Of one subject before the next one's, the first ones not counted. Peers compile in a round before.
STEPS_PER_TURN, STEPS_TO_WARM_UP = 14, 4
MAX_LENGTH = 1024
BLOCKS_PER_SEQUENCE = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement.

    Attributes:
        task_queue: ``TASK_QUEUE_ENABLE``.
        load_average: of the last minute, when the row was made; one of it is the benchmark itself,
            with the task queue up to two.
    """

    case: str
    task_queue: int
    load_average: float
    layers: int
    sequences: int
    subject: str
    launches_per_step: int | None
    microseconds_per_step_median: float
    ratio_to_eager: float | None
    floor_microseconds: float | None
    ratio_to_floor: float | None


def batches(sequences: int) -> Iterator[StepBatch]:
    """Yield decode batches whose lengths grow by one a step, as in serving."""
    table = torch.arange(1, 1 + sequences * BLOCKS_PER_SEQUENCE, dtype=torch.int32)
    table = table.view(sequences, BLOCKS_PER_SEQUENCE)
    for step in range(MAX_LENGTH // 2):
        length = step + MAX_LENGTH // 2
        position = length - 1
        yield StepBatch(
            input_ids=torch.ones(sequences, dtype=torch.int32),
            positions=torch.full((sequences,), position),
            slot_mapping=table[:, position // 128] * 128 + position % 128,
            block_table=table,
            query_lengths=(1,) * sequences,
            kv_lengths=(length,) * sequences,
        )


def make_runners(
    folder: Path, sequences: int, modes: Sequence[str] = MODES
) -> dict[str, CompiledModelRunner]:
    """Return a captured runner for each mode."""
    device = NpuDevice()
    runners = {
        mode: CompiledModelRunner.load(
            folder,
            {"mode": mode, "capture_sizes": [sequences]},
            device=device,
            num_blocks=1 + sequences * BLOCKS_PER_SEQUENCE,
            max_length=MAX_LENGTH,
        )
        for mode in modes
    }
    for runner in runners.values():
        runner.capture()
    return runners


def make_peers(
    folder: Path, sequences: int, names: Sequence[str] = tuple(PEERS)
) -> dict[str, UpdatedGraph | CompiledByNpugraphEx]:
    """Return the peers, over a model each."""
    device, first = NpuDevice(), next(batches(sequences))
    sizes = {"num_blocks": 1 + sequences * BLOCKS_PER_SEQUENCE, "max_length": MAX_LENGTH}
    return {name: PEERS[name](folder, device, first, **sizes) for name in names}


def measure(
    folder: Path, layers: int, sequences: int, rounds: int, *, drawn_only: bool = False
) -> list[Row]:
    """Return the rows of all modes and peers, and of the modes in parts.

    With ``drawn_only`` they are those of the modes and peers in the figure, without parts.
    """
    device = NpuDevice()
    left_out = {*MODES, *PEERS} - set(DRAWN) if drawn_only else set[str]()
    runners = make_runners(folder, sequences, [mode for mode in MODES if mode not in left_out])
    peers = make_peers(folder, sequences, [peer for peer in PEERS if peer not in left_out])
    subjects = {**runners, **peers}
    steps = {name: cycle(list(batches(sequences))) for name in subjects}
    microseconds: dict[str, list[float]] = {name: [] for name in subjects}
    launches: dict[str, int] = {}
    for turn in range(1 + rounds):
        for name, subject in subjects.items():
            for number in range(STEPS_PER_TURN):
                batch = next(steps[name])
                device.synchronize()
                # Not around a step that is timed: it takes the caches from it, 100 us of 570.
                before = cann_sim.counters() if number == 0 else None
                started = time.perf_counter()
                subject.decode(batch)
                elapsed = time.perf_counter() - started
                device.synchronize()
                if before is not None:
                    launches[name] = (cann_sim.counters() - before).launches
                if turn and number >= STEPS_TO_WARM_UP:
                    microseconds[name].append(elapsed * 1e6)
    medians = {name: statistics.median(values) for name, values in microseconds.items()}
    parts = [] if drawn_only else measure_parts(runners, layers, sequences, rounds)
    for subject in subjects.values():
        subject.close()
    rows = []
    for name, median in medians.items():
        of_subject = [row for row in parts if row.subject.startswith(f"{name}: ")]
        least = sum(row.floor_microseconds or 0.0 for row in of_subject)
        rows.append(
            Row(
                case="decode step, kernels do nothing",
                task_queue=int(os.environ["TASK_QUEUE_ENABLE"]),
                load_average=round(os.getloadavg()[0], 1),
                layers=layers,
                sequences=sequences,
                subject=name,
                launches_per_step=launches[name],
                microseconds_per_step_median=round(median, 1),
                ratio_to_eager=round(medians["eager"] / median, 2),
                floor_microseconds=round(least, 1) if least else None,
                ratio_to_floor=round(median / least, 2) if least else None,
            )
        )
        rows += of_subject
    return rows


def measure_parts(
    runners: Mapping[str, CompiledModelRunner], layers: int, sequences: int, rounds: int
) -> list[Row]:
    """Return a row for each part of the steps of some modes; their runners stay timed."""
    device = NpuDevice()
    times = {mode: watch_parts(runners[mode]) for mode in MODES_IN_PARTS}
    steps = {mode: cycle(list(batches(sequences))) for mode in MODES_IN_PARTS}
    calls = floors(runners["full"], layers, sequences)
    taken: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES_IN_PARTS}
    alone: dict[str, list[float]] = {part: [] for part in calls}
    for _ in range(rounds):
        for mode in MODES_IN_PARTS:
            for number in range(STEPS_PER_TURN):
                batch = next(steps[mode])
                device.synchronize()
                started = time.perf_counter()
                runners[mode].decode(batch)
                elapsed = (time.perf_counter() - started) * 1e6
                spent = times[mode].take()
                spent["rest"] = elapsed - sum(spent.values())
                if number >= STEPS_TO_WARM_UP:
                    taken[mode].append(spent)
        for part, call in calls.items():
            for number in range(STEPS_PER_TURN):
                device.synchronize()
                started = time.perf_counter()
                call(number)
                if number >= STEPS_TO_WARM_UP:
                    alone[part].append((time.perf_counter() - started) * 1e6)
    least = {part: statistics.median(values) for part, values in alone.items()}
    rows = []
    for mode, of_mode in taken.items():
        median = {part: statistics.median(each[part] for each in of_mode) for part in of_mode[0]}
        of_device = median.pop(DEVICE_REPLAY)
        median["replay"] += of_device
        floor = {**least, "replay": of_device, "logits": median["logits"]}
        rows += [
            Row(
                case="part of a decode step",
                task_queue=int(os.environ["TASK_QUEUE_ENABLE"]),
                load_average=round(os.getloadavg()[0], 1),
                layers=layers,
                sequences=sequences,
                subject=f"{mode}: {part}",
                launches_per_step=None,
                microseconds_per_step_median=round(median[part], 1),
                ratio_to_eager=None,
                floor_microseconds=round(floor[part], 1) if part in floor else None,
                ratio_to_floor=round(median[part] / floor[part], 2) if part in floor else None,
            )
            for part in (*PARTS, "rest")
            if part in median
        ]
    return rows


def run_process(options: argparse.Namespace, task_queue: str) -> list[Row]:
    """Measure in a new process with one setting of the task queue."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, __file__, f"--layers={options.layers}", f"--into={path}"]
        command += [f"--sequences={options.sequences}", f"--rounds={options.rounds}"]
        command += [f"--plot={options.plot}"] if options.plot else []
        environment = {**os.environ, "TASK_QUEUE_ENABLE": task_queue}
        subprocess.run(command, env=environment, check=True, timeout=3000)
        return [Row(**row) for row in json.loads(path.read_text())]


def measure_in_this_process(options: argparse.Namespace) -> None:
    """Measure with the setting that the process has, and write the rows."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        shape = TinyShape(num_layers=options.layers)
        folder = write_tiny_checkpoint(Path(temporary), shape=shape)
        for sequences in map(int, options.sequences.split(",")):
            drawn_only = options.plot is not None
            rows += measure(
                folder, options.layers, sequences, options.rounds, drawn_only=drawn_only
            )
    Path(options.into).write_text(json.dumps([asdict(row) for row in rows]))


def print_table(rows: list[Row]) -> None:
    """Print the rows of one setting of the task queue."""
    first = rows[0]
    title = f"decode step on the host, {first.layers} layers, null kernels, "
    title += f"TASK_QUEUE_ENABLE={first.task_queue}"
    load = f"load average at most {max(row.load_average for row in rows)}"
    table = Table("subject", title=title, caption=f"{load} on {os.cpu_count()} cores")
    for name in ("sequences", "launches", "us", "eager / subject", "floor us", "of floor"):
        table.add_column(name, justify="right")
    for row in rows:
        part = row.launches_per_step is None
        figures = (
            (row.launches_per_step, "d"),
            (row.microseconds_per_step_median, ".0f"),
            (row.ratio_to_eager, ".2f"),
            (row.floor_microseconds, ".0f"),
            (row.ratio_to_floor, ".2f"),
        )
        texts = ["" if figure is None else format(figure, form) for figure, form in figures]
        table.add_row(f"  {row.subject}" if part else row.subject, str(row.sequences), *texts)
    Console(width=110).print(table)


def draw(rows: list[Row], path: str) -> None:
    """Draw the first measurement of each mode and peer in the figure."""
    first = rows[0]
    title = f"Host time of a decode step of {first.layers} layers, {first.sequences} sequences"
    microseconds: dict[str, float] = {}
    for row in rows:
        if row.subject in DRAWN:
            microseconds.setdefault(row.subject, row.microseconds_per_step_median)
    draw_host_time(microseconds, path, f"{title} (simulated CANN)")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--sequences", default="1,8,16")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--task-queues", default="0,1")
    parser.add_argument("--plot", help="draw the modes and torch_npu alone into this file")
    parser.add_argument("--into", help="measure in this process and write the rows there")
    options = parser.parse_args()
    if options.into:
        measure_in_this_process(options)
        return
    rows: list[Row] = []
    for task_queue in options.task_queues.split(","):
        of_setting = run_process(options, task_queue)
        print_table(of_setting)
        rows += of_setting
    target = Path("build/bench/decode.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.plot:
        draw(rows, options.plot)


if __name__ == "__main__":
    main()
