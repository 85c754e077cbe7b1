"""Where a replay waits for the update of its attention, layer by layer, on the virtual clock.

Run by `nox -s bench -- update-stalls`. Options (as `--name=value`): `--cards=2,4,8`, over how many
a model is spread, `--steps=6`, `--published=184`, `--turns=24`. Prints a table, and writes rows
`{cards, subject, host_microseconds_per_layer, step_microseconds, stalls}` to
build/bench/update-stalls.json, `stalls` being the microseconds of each layer of the last step, and
build/bench/update-stalls.svg.

The model is the decoder of Qwen3-32B in bfloat16: 64 layers, 16 sequences of some 4,096 keys; what
the cards tell each other is left out. Its kernels take the time that cann-sim's virtual clock gives
them. The host's time for the update of a layer is given, so that the result is the same in every
run: what vllm-ascend's loop was measured to take on an Ascend 910B3 (3.68 ms for 20 layers,
vllm-ascend issue 13058), and for the others as much less as they take less than that loop on this
machine, measured in this run with kernels that do nothing. Ratios, not times of a device.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench_attn_update import (
    HEAD_DIM,
    TORCH_NPU,
    Workload,
    make_npu_graph_update,
    make_ours,
    make_protocol,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS, HIDDEN, QUERY_HEADS, KV_HEADS, INTERMEDIATE = 64, 5120, 64, 8, 25600
SEQUENCES, KEYS, BLOCK_SIZE = 16, 4096, 128
FOLDER = Path(__file__).parent.parent / "build" / "bench"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to replay and update.

    Attributes:
        make: captures and returns a step.
        synchronises: whether the host first waits for the previous step.
    """

    make: Callable[[Workload], Callable[[int], None]]
    synchronises: bool = False


LOOP = "loop: synchronise, replay, update"
WAYS = {
    LOOP: Way(make=functools.partial(make_protocol, fused=False), synchronises=True),
    "loop: synchronise, update, replay": Way(
        make=functools.partial(make_protocol, fused=False, replay_first=False), synchronises=True
    ),
    "loop: wait on the device, replay, update": Way(
        make=functools.partial(make_protocol, fused=False, waits=True)
    ),
    "NPUGraph.update: synchronise, replay, update": Way(
        make=make_npu_graph_update, synchronises=True
    ),
    "attn_update, native": Way(make=functools.partial(make_ours, updater="native")),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way with a model over some cards."""

    cards: int
    subject: str
    host_microseconds_per_layer: float
    step_microseconds: float
    stalls: list[float]


def make_workload(cards: int) -> Workload:
    """Allocate one layer of the model; all layers are captured with its tensors."""
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)

    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="npu")

    heads, kv_heads, middle = QUERY_HEADS // cards, KV_HEADS // cards, INTERMEDIATE // cards
    width, kv_width = heads * HEAD_DIM, kv_heads * HEAD_DIM
    blocks = (KEYS + 500) // BLOCK_SIZE + 1
    keys, values = (empty(SEQUENCES * blocks, BLOCK_SIZE, kv_width) for _ in range(2))
    query = empty(SEQUENCES, heads, HEAD_DIM)
    x, residual, attended = (
        empty(SEQUENCES, HIDDEN),
        empty(SEQUENCES, HIDDEN),
        empty(SEQUENCES, width),
    )
    gamma, head_gamma = empty(HIDDEN), empty(HEAD_DIM)
    to_qkv, to_hidden = empty(HIDDEN, width + 2 * kv_width), empty(width, HIDDEN)
    to_middle, from_middle = empty(HIDDEN, 2 * middle), empty(middle, HIDDEN)
    cos, sin = empty(1, SEQUENCES, 1, HEAD_DIM), empty(1, SEQUENCES, 1, HEAD_DIM)
    slots = torch.zeros(SEQUENCES, 1, dtype=torch.int64, device="npu")
    flat = [cache.view(-1, kv_width) for cache in (keys, values)]

    def before_attention() -> None:
        """Run a layer without attention: the end of the last layer and the start of this one."""
        torch_npu.npu_add_rms_norm(attended @ to_hidden, residual, gamma)
        torch_npu.npu_swiglu(x @ to_middle) @ from_middle
        torch_npu.npu_add_rms_norm(x, residual, gamma)
        q, k, v = torch.split(x @ to_qkv, [width, kv_width, kv_width], dim=-1)
        for part, count in ((q, heads), (k, kv_heads)):
            each = torch_npu.npu_rms_norm(part.reshape(1, SEQUENCES, count, HEAD_DIM), head_gamma)
            torch_npu.npu_rotary_mul(each[0], cos, sin)
        for cache, part in zip(flat, (k, v), strict=True):
            torch_npu.npu_scatter_nd_update_(cache, slots, part)

    arguments = {
        "query": query,
        "key": keys,
        "value": values,
        "atten_mask": empty(2048, 2048, dtype=torch.int8),
        "block_table": torch.zeros(SEQUENCES, blocks, dtype=torch.int32, device="npu"),
        "input_layout": "TND",
        "block_size": BLOCK_SIZE,
        "num_heads": heads,
        "num_key_value_heads": kv_heads,
        "scale": HEAD_DIM**-0.5,
        "sparse_mode": 3,
    }
    return Workload(
        layers=LAYERS,
        sequences=SEQUENCES,
        arguments=arguments,
        stream=torch_npu.npu.Stream(),
        before_attention=before_attention,
        first_length=KEYS,
    )


def set_up() -> Any:
    """Return `torch.npu`, set up as engines do."""
    npu = importlib.import_module(TORCH_NPU).npu
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    return npu


def measure_host(turns: int) -> None:
    """Print the host's microseconds for a layer's update of each way, as JSON."""
    npu = set_up()
    workload = replace(make_workload(8), before_attention=lambda: None)
    with npu.stream(workload.stream):
        steps = {subject: way.make(workload) for subject, way in WAYS.items()}
        times: dict[str, list[float]] = {subject: [] for subject in steps}
        gc.collect()
        gc.disable()
        for turn in range(turns):
            for subject, step in steps.items():
                for number in range(10):
                    begin = time.perf_counter()
                    step(10 * turn + number)
                    elapsed = time.perf_counter() - begin
                    npu.synchronize()
                    if number > 2:
                        times[subject].append(elapsed)
    medians = {subject: statistics.median(each) for subject, each in times.items()}
    print("FOUND", json.dumps({subject: 1e6 * each / LAYERS for subject, each in medians.items()}))


def run_way(cards: int, subject: str, steps: int) -> None:
    """Run steps of one way; the trace of this process has their times."""
    npu = set_up()
    way = WAYS[subject]
    workload = make_workload(cards)
    with npu.stream(workload.stream):
        step = way.make(workload)
        npu.synchronize()
        for number in range(steps):
            if way.synchronises:
                npu.current_stream().synchronize()
            step(number)
        npu.synchronize()


def run_process(arguments: list[str], settings: dict[str, str]) -> str:
    """Run this file in a new process on simulated CANN; return its output."""
    launcher = str(Path(sys.executable).with_name("cann-sim"))
    environment = {
        **os.environ,
        "CANN_SIM_KERNELS": "null",
        "CANN_SIM_MEMORY_GB": "64",
        "TASK_QUEUE_ENABLE": "0",
        **settings,
    }
    done = subprocess.run(
        [launcher, "run", "--", sys.executable, __file__, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1500,
    )
    return done.stdout


def run(options: argparse.Namespace) -> list[Row]:
    """Measure the host, then run each way over each number of cards."""
    from cann_sim import read_stalls

    printed = run_process([f"--turns={options.turns}", "--measure-host"], {})
    line = next(line for line in printed.splitlines() if line.startswith("FOUND "))
    host = json.loads(line.removeprefix("FOUND "))
    rows = []
    for cards in map(int, options.cards.split(",")):
        for subject in WAYS:
            given = options.published * host[subject] / host[LOOP]
            with tempfile.TemporaryDirectory() as folder:
                trace = Path(folder) / "trace.json"
                run_process(
                    [f"--cards={cards}", f"--steps={options.steps}", f"--subject={subject}"],
                    {"CANN_SIM_CLOCK": f"given:{given:.3f}", "CANN_SIM_TRACE": str(trace)},
                )
                stalls = read_stalls(trace)
                replays = [
                    event["ts"] + event["dur"]
                    for event in json.loads(trace.read_text())
                    if event["name"] == "MODEL_EXECUTE" and event["cat"] == "replay"
                ]
            ends = sorted(replays)
            rows.append(
                Row(
                    cards=cards,
                    subject=subject,
                    host_microseconds_per_layer=round(given, 2),
                    step_microseconds=round(ends[-1] - ends[-2], 1),
                    stalls=[
                        round(stall.microseconds, 1)
                        for stall in stalls
                        if stall.replay == len(ends)
                    ],
                )
            )
    return rows


def print_table(rows: list[Row]) -> None:
    """Print the rows."""
    table = Table("cards", "subject", "host us a layer", "layers that stall", "stall", "step us")
    for row in rows:
        share = f"{100 * sum(row.stalls) / row.step_microseconds:.1f} %"
        stalled = f"{sum(stall > 0 for stall in row.stalls)} of {len(row.stalls)}"
        host = f"{row.host_microseconds_per_layer:.1f}"
        step = f"{row.step_microseconds:,.0f}"
        table.add_row(str(row.cards), row.subject, host, stalled, share, step)
    Console(width=120).print(table)


def draw(rows: list[Row], path: Path) -> None:
    """Draw the stalls by layer, a panel for each number of cards."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    numbers = list(dict.fromkeys(row.cards for row in rows))
    figure, panels = plt.subplots(
        len(numbers), 1, figsize=(9, 1 + 2.4 * len(numbers)), sharex=True, squeeze=False
    )
    for axes, cards in zip(panels[:, 0], numbers, strict=True):
        for row in rows:
            if row.cards == cards:
                axes.step(range(len(row.stalls)), row.stalls, where="mid", label=row.subject)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylabel("stall, us (0: hidden)")
        axes.set_title(f"Qwen3-32B over {cards} cards", loc="left", fontsize=9)
        axes.grid(axis="y", linewidth=0.4)
    panels[-1, 0].set_xlabel("layer")
    panels[0, 0].legend(fontsize=7, frameon=False, loc="center right")
    figure.suptitle(
        "Waiting for the update of attention; virtual times, for their ratios", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Run the benchmark, or one process of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", default="2,4,8")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--published", type=float, default=184.0)
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--measure-host", action="store_true")
    parser.add_argument("--subject")
    options = parser.parse_args()
    if options.measure_host:
        measure_host(options.turns)
    elif options.subject:
        run_way(int(options.cards), options.subject, options.steps)
    else:
        rows = run(options)
        print_table(rows)
        FOLDER.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(row) for row in rows], indent=1)
        (FOLDER / "update-stalls.json").write_text(text + "\n")
        draw(rows, FOLDER / "update-stalls.svg")


if __name__ == "__main__":
    main()
