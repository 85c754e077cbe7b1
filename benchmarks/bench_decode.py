"""Host cost and operator launches of a Qwen3 decode step in every compile mode.

Run by ``./nox -s bench -- decode``; options after the name, as ``--layers=28``, ``--sequences=8``,
``--rounds=60``. Kernels of the simulator do nothing, so only the host is measured. All modes run in
one process, turn by turn, so noise of the machine meets them alike. Prints a table and writes rows
``{case, layers, sequences, subject, launches_per_step, microseconds_per_step_median,
ratio_to_eager}`` to build/bench/decode.json; the ratio is of the medians, eager over subject.
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
from typing import TYPE_CHECKING

import cann_sim

os.environ["CANN_SIM_KERNELS"] = "null"
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

MODES = ("eager", "piecewise", "breakable", "full", "torchair", "measured")
WARMUP_ROUNDS = 5
MAX_LENGTH = 1024
BLOCKS_PER_SEQUENCE = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    sequences: int
    subject: str
    launches_per_step: int
    microseconds_per_step_median: float
    ratio_to_eager: float


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


def measure(folder: Path, layers: int, sequences: int, rounds: int) -> list[Row]:
    """Return one row for each mode."""
    device = NpuDevice()
    runners = {
        mode: CompiledModelRunner.load(
            folder,
            {"mode": mode, "capture_sizes": [sequences]},
            device=device,
            num_blocks=1 + sequences * BLOCKS_PER_SEQUENCE,
            max_length=MAX_LENGTH,
        )
        for mode in MODES
    }
    steps = {mode: batches(sequences) for mode in MODES}
    microseconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    launches: dict[str, int] = {}
    for runner in runners.values():
        runner.capture()
    for turn in range(WARMUP_ROUNDS + rounds):
        for mode, runner in runners.items():
            batch = next(steps[mode])
            device.synchronize()
            before = cann_sim.counters()
            started = time.perf_counter()
            runner.decode(batch)
            elapsed = time.perf_counter() - started
            device.synchronize()
            launches[mode] = (cann_sim.counters() - before).launches
            if turn >= WARMUP_ROUNDS:
                microseconds[mode].append(elapsed * 1e6)
    for runner in runners.values():
        runner.close()
    medians = {mode: statistics.median(values) for mode, values in microseconds.items()}
    return [
        Row(
            case="decode step, kernels do nothing",
            layers=layers,
            sequences=sequences,
            subject=mode,
            launches_per_step=launches[mode],
            microseconds_per_step_median=round(medians[mode], 1),
            ratio_to_eager=round(medians["eager"] / medians[mode], 2),
        )
        for mode in MODES
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--sequences", default="1,8,16")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        shape = TinyShape(num_layers=arguments.layers)
        folder = write_tiny_checkpoint(Path(temporary), shape=shape)
        for sequences in map(int, arguments.sequences.split(",")):
            rows += measure(folder, arguments.layers, sequences, arguments.rounds)
    table = Table(title=f"decode step on the host, {arguments.layers} layers, null kernels")
    for name in ("sequences", "subject", "launches/step", "us/step", "eager / subject"):
        table.add_column(name, justify="left" if name == "subject" else "right")
    for row in rows:
        table.add_row(
            str(row.sequences),
            row.subject,
            str(row.launches_per_step),
            f"{row.microseconds_per_step_median:.0f}",
            f"{row.ratio_to_eager:.2f}",
        )
    Console().print(table)
    target = Path("build/bench/decode.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
