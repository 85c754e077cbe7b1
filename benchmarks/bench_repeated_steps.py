"""Host cost of a token where a replay holds 1, 4, 8 and 16 decode steps, sampling included.

Run by ``./nox -s bench -- repeated-steps``; options after the name, as ``--layers=28``,
``--sequences=8``, ``--steps=1,4,8,16``, ``--rounds=6``. Kernels of the simulator do nothing and the
task queue is off, so only the host is measured, from the batch to the queued replay. Subjects take
turns in one process; the first replays of a turn are not counted, and each begins with an empty
device.

Prints a table and writes rows ``{layers, sequences, steps, updates_per_replay,
microseconds_per_replay_median, microseconds_per_token, ratio_to_single, load_average}`` to
build/bench/repeated-steps.json. A token is one of each sequence.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import cann_sim

os.environ["CANN_SIM_KERNELS"] = "null"
os.environ["TASK_QUEUE_ENABLE"] = "0"
cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from bench_decode import BLOCKS_PER_SEQUENCE, MAX_LENGTH, batches  # noqa: E402
from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine import SamplingBatch  # noqa: E402
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner  # noqa: E402
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint  # noqa: E402

REPLAYS_PER_TURN, REPLAYS_TO_WARM_UP = 12, 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    layers: int
    sequences: int
    steps: int
    updates_per_replay: int
    microseconds_per_replay_median: float
    microseconds_per_token: float
    ratio_to_single: float
    load_average: float


def measure(folder: Path, options: argparse.Namespace) -> list[Row]:
    """Return a row for each number of steps."""
    device, sequences = NpuDevice(), options.sequences
    numbers = [int(each) for each in options.steps.split(",")]
    runners = {
        steps: CompiledModelRunner.load(
            folder,
            {"mode": "full", "capture_sizes": [sequences]},
            device=device,
            num_blocks=1 + sequences * BLOCKS_PER_SEQUENCE,
            max_length=MAX_LENGTH,
            decode_steps=steps,
        )
        for steps in numbers
    }
    for runner in runners.values():
        runner.capture()
    taken: dict[int, list[float]] = {steps: [] for steps in numbers}
    updates: dict[int, int] = {}
    given = {steps: cycle(list(batches(sequences))) for steps in numbers}
    for _ in range(options.rounds):
        for steps, runner in runners.items():
            for number in range(REPLAYS_PER_TURN):
                batch = next(given[steps])
                sampling = SamplingBatch(
                    temperatures=torch.ones(sequences),
                    seeds=torch.arange(sequences),
                    slots=batch.slot_mapping[:, None].repeat(1, steps),
                )
                device.synchronize()
                before = cann_sim.counters() if number == 0 else None
                began = time.perf_counter()
                runner.decode_tokens(batch, sampling)
                elapsed = time.perf_counter() - began
                device.synchronize()
                if before is not None:
                    updates[steps] = (cann_sim.counters() - before).task_updates
                if number >= REPLAYS_TO_WARM_UP:
                    taken[steps].append(elapsed * 1e6)
    for runner in runners.values():
        runner.close()
    medians = {steps: statistics.median(values) for steps, values in taken.items()}
    single = medians[numbers[0]] / numbers[0]
    return [
        Row(
            layers=options.layers,
            sequences=sequences,
            steps=steps,
            updates_per_replay=updates[steps],
            microseconds_per_replay_median=round(median, 1),
            microseconds_per_token=round(median / steps, 1),
            ratio_to_single=round(single * steps / median, 2),
            load_average=round(os.getloadavg()[0], 1),
        )
        for steps, median in medians.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--steps", default="1,4,8,16")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        shape = TinyShape(num_layers=options.layers)
        rows = measure(write_tiny_checkpoint(Path(temporary), shape=shape), options)
    load = f"load average at most {max(row.load_average for row in rows)} on {os.cpu_count()} cores"
    title = f"decode steps in one replay, {options.layers} layers, null kernels"
    table = Table("steps", title=title, caption=load)
    for name in ("updates", "us a replay", "us a token", "1 step / subject"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.steps),
            str(row.updates_per_replay),
            f"{row.microseconds_per_replay_median:.0f}",
            f"{row.microseconds_per_token:.1f}",
            f"{row.ratio_to_single:.2f}",
        )
    Console(width=90).print(table)
    target = Path("build/bench/repeated-steps.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
