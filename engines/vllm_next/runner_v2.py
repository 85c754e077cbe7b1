"""vllm-ascend's newest release with model runner v2: its attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.runner_v2``. Variants are those of
engines/vllm_next/session.py. Log-probabilities are not compared: the kernel that computes them is
Triton's. Rows go to build/engines/vllm-next-runner-v2.json.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import conclude, make_parser, run_variants
from engines.vllm.session import (
    Variant,
    count_preemptions,
    describe,
    generate,
    make_engine,
    runner_of,
)
from engines.vllm.without_device.stand_ins import set_environment
from engines.vllm_next import stand_ins, stand_ins_v2
from engines.vllm_next.session import COUNTED, shift_lengths

import cann_sim

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

SAME = ("preempted", "full_steps", "replays", "waits_in_full_steps", "synchronisations")
COLUMNS = {**DESCRIBED, **dict.fromkeys(dict.fromkeys((*SAME, *COUNTED)), ""), **TOKEN_COLUMNS}


def run_load(
    variant: Variant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    from vllm_npu_graph.v0_30.lane_graph import LaneGraph

    # This release refuses our key in its configuration.
    os.environ |= {"VLLM_NPU_GRAPH": json.dumps(variant.key), "VLLM_USE_V2_MODEL_RUNNER": "1"}
    own = dataclasses.replace(variant, key=None)
    llm = make_engine(own, checkpoint, install=stand_ins_v2.install)
    rows = [measure_load(llm, variant, count)]
    update = getattr(runner_of(llm), "attention_update", None)
    if update is not None:
        rows[0] |= {"updater": update.lane.updater, "updater_reason": update.lane.updater_reason}
        graphs = [
            graph
            for graph in runner_of(llm).cudagraph_manager.graphs.values()
            if isinstance(graph, LaneGraph)
        ]
        assert graphs, "no graph was adopted"
        for graph in graphs:
            shift_lengths(graph, -1)
        rows.append(measure_load(llm, variant, count) | {"name": "control"})
    return rows


def measure_load(llm: Any, variant: Variant, count: int) -> dict[str, Any]:
    """Return the tokens of a load and the cost of its steps."""
    manager, preempted = runner_of(llm).cudagraph_manager, count_preemptions(llm)
    waits: list[int] = []
    replay = manager.run_fullgraph

    def counted(*args: Any) -> Any:
        before = cann_sim.counters().synchronisations
        result = replay(*args)
        waits.append(cann_sim.counters().synchronisations - before)
        return result

    manager.run_fullgraph = counted
    before = cann_sim.counters()
    tokens = generate(llm, *compare_load(count))
    found = cann_sim.counters() - before
    manager.run_fullgraph = replay
    return {
        **describe(variant),
        "sequences": len(tokens),
        "preempted": len(preempted),
        "tokens": tokens,
        "full_steps": len(waits),
        "waits_in_full_steps": sum(waits),
        **{name: getattr(found, name) for name in COUNTED},
    }


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        if theirs is None or row["name"] == "stock":
            continue
        wrong += find_wrong_tokens(row, what)
        wrong += find_unexpected(row, what, {name: theirs[name] for name in SAME})
    return wrong


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    import torch
    from engines.models.tiny_qwen3 import write_checkpoint

    checkpoint = folder / f"{variant.num_layers}"
    if not checkpoint.exists():
        write_checkpoint(checkpoint, num_layers=variant.num_layers, dtype=torch.bfloat16)
    call = functools.partial(run_load, variant, checkpoint, options.sequences, rows)
    log = options.out.with_name(f"vllm-next-runner-v2-{number}.log")
    return run_forked(call, describe(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    options = make_parser("vllm-next-runner-v2", __doc__).parse_args()
    set_environment()
    kept = stand_ins.prepare()
    import vllm_ascend.platform  # noqa: F401

    variants = [
        Variant(
            name=name, dtype="bfloat16", num_layers=options.layers, mode="FULL_DECODE_ONLY", **own
        )
        for name, own in (("stock", {"worker": False}), ("off", {}), ("ours", {"key": True}))
    ]
    rows = run_variants(variants, options, run_apart)
    del kept
    engine = " + ".join(f"{name} {version(name)}" for name in ("vllm", "vllm-ascend"))
    return conclude(rows, COLUMNS, engine, verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
