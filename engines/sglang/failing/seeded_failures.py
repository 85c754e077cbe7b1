"""SGLang on simulated CANN under faults that seeds decide: named errors, and never a hang.

Run as ``cann-sim run -- python -m engines.sglang.failing.seeded_failures``. An engine decodes a
load, then the same load while something fails, then again without a fault. It ends with the error
that names what failed, or gives the tokens of the first load, and those again behind it. An engine
that ends is started anew for the next seed; one that goes on meets it as well. One that takes too
long hangs, and is ended. Each way to update and to capture has engines of its own. Rows go to
build/engines/sglang-seeded-failures.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

from engines.faults.fault_rows import conclude_faults
from engines.faults.seeded_faults import Fault, draw_fault
from engines.running.process_group import run_group
from engines.running.session_run import ROOT
from engines.sglang.models import ModelVariant
from engines.sglang.session import generate, make_engine
from engines.sglang.without_device import stand_ins

OUT = ROOT / "build" / "engines" / "sglang-seeded-failures.json"
# An engine starts in half a minute and runs a load in some seconds; others use the machine too.
MOST_SECONDS = 480
RANKS = 2
DESCRIBED: dict[str, Any] = {"name": "ours", "dtype": "bfloat16", "num_layers": 2, "model": "Qwen3"}
CAPTURED_BY_KERNELS = '{"decode": "capture", "updater": "kernels"}'
ENGINES = {
    "native": ModelVariant(variable='{"updater": "native"}', **DESCRIBED),
    "kernels": ModelVariant(variable='{"updater": "kernels"}', **DESCRIBED),
    "captured": ModelVariant(variable='{"decode": "capture"}', **DESCRIBED),
    "captured, kernels": ModelVariant(variable=CAPTURED_BY_KERNELS, **DESCRIBED),
    "two ranks": ModelVariant(variable="1", ranks=RANKS, **DESCRIBED),
    "two ranks, captured": ModelVariant(variable='{"decode": "capture"}', ranks=RANKS, **DESCRIBED),
}
REFUSED = "attn_update.errors.StepParameterError: checking 'actual_seq_lengths"
# What may fail, and what the engine's processes have to print then, one of it.
KINDS: dict[str, tuple[str, ...]] = {
    "update": ("attn_update.errors.UpdateError: updating npu::",),
    "lengths": (REFUSED,),
    "fewer lengths": (REFUSED,),
    "replay": ("RuntimeError: injected replay",),
    # The engine sees it, or the other rank, which waits for that one.
    "death": ("crashed with exit code -9", "waits for ranks that never come"),
    "capture": ("an injected fault",),
}
NUM_GRAPHS = 5
"""Graphs that an engine captures at its start."""


def fault_of(name: str, seed: int) -> Fault:
    """Return the fault of a seed for an engine."""
    return draw_fault(seed, tuple(KINDS), ENGINES[name].ranks)


def run_faults(name: str, seeds: list[int], checkpoint: Path, out: Path) -> None:
    """Run the faults of seeds in an engine, in this process and those of the engine.

    Args:
        name: Of the engine.
        seeds: Run until the engine ends.
        checkpoint: Of the model.
        out: File for the rows; while a fault runs, the last one has only its seed.
    """
    variant, rows = ENGINES[name], []
    engine = make_engine(variant, checkpoint, **variant.options())
    for seed in seeds:
        fault = fault_of(name, seed)
        before = generate(engine, fault.prompts, fault.lengths)
        out.write_text(json.dumps([*rows, {"seed": seed}]))
        given = {"kind": fault.kind, "first": fault.first, "rank": fault.rank}
        engine.collective_rpc("begin_failing", **given)
        during = generate(engine, fault.prompts, fault.lengths)
        engine.collective_rpc("end_failing")
        behind = generate(engine, fault.prompts, fault.lengths)
        wrong = ["other tokens while it failed"] * (during != before)
        wrong += ["other tokens behind it"] * (behind != before)
        rows.append({**described(name, fault), "told": "", "wrong": wrong})
        out.write_text(json.dumps(rows))


def described(name: str, fault: Fault) -> dict[str, Any]:
    """Return the first fields of the row of a fault."""
    tokens = sum(fault.lengths)
    drawn = {each: getattr(fault, each) for each in ("seed", "kind", "first", "rank")}
    return {"engine": name, **drawn, "tokens": tokens}


def run_seeds(name: str, seeds: list[int], folder: Path) -> list[dict[str, Any]]:
    """Run seeds in as few engines as possible, with a new one after each failure; return rows."""
    rows: list[dict[str, Any]] = []
    while len(rows) < len(seeds):
        left = seeds[len(rows) :]
        environment = ENGINES[name].environment()
        fault = fault_of(name, left[0])
        if fault.kind == "capture":
            # It meets the engine's start.
            left = left[:1]
            number = 1 + fault.first % NUM_GRAPHS
            environment["CANN_SIM_FAULTS"] = f"capture_end:{number}"
        else:
            left = list(takewhile(lambda seed: fault_of(name, seed).kind != "capture", left))
        log = OUT.with_name(f"{OUT.stem}-{left[0]}.log")
        out = folder / f"{left[0]}.json"
        given = json.dumps([name, left, str(folder / "checkpoint"), str(out)])
        ended = run_group(__spec__.name, given, environment, log, MOST_SECONDS)
        took = time.time() - out.stat().st_mtime if out.exists() else None
        found = json.loads(out.read_text()) if out.exists() else []
        rows += [row for row in found if "wrong" in row]
        met = len([row for row in found if "wrong" in row])
        if met < len(left):
            rows.append({**judge(name, fault_of(name, left[met]), ended, log), "seconds": took})
    return rows


def judge(name: str, fault: Fault, ended: str | None, log: Path) -> dict[str, Any]:
    """Return the row of a fault after which an engine ended.

    Args:
        name: Of the engine.
        fault: The last fault.
        ended: How it ended; None if it had to be killed.
        log: What it printed.
    """
    lines = log.read_text(errors="replace").splitlines()
    told = [line for line in lines if any(text in line for text in KINDS[fault.kind])]
    wrong = [] if told else [f"it says nothing of it; see {log.name}"]
    if ended is None:
        wrong.append(f"hangs: not ended after {MOST_SECONDS} s; see {log.name}")
    return {
        **described(name, fault),
        "told": told[0][:300] if told else "",
        "ended": ended,
        "wrong": wrong,
    }


def main() -> int:
    """Run all seeds; return 1 if one did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="how many, over all engines")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, seeds, checkpoint, out = json.loads(options.run)
        run_faults(name, seeds, Path(checkpoint), Path(out))
        return 0
    stand_ins.set_environment()
    # What ends the session ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    import torch
    from engines.models.tiny_qwen3 import write_checkpoint

    OUT.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "checkpoint", num_layers=2, dtype=torch.bfloat16)
        for number, name in enumerate(options.engines):
            begin = time.monotonic()
            rows += run_seeds(name, list(seeds[number :: len(options.engines)]), Path(folder))
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
            OUT.write_text(json.dumps(rows, indent=1))
    return conclude_faults(rows, "SGLang with sglang-npu-graph, faults that seeds decide")


if __name__ == "__main__":
    sys.exit(main())
