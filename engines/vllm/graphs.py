"""vLLM-Ascend on simulated CANN with npu_graph_runtime as the wrapper of its graphs.

Run as ``cann-sim run -- python -m engines.vllm.graphs``. The engine's platform is that of
vllm_npu_graph in every variant, chosen by ``VLLM_PLUGINS``; without the key it answers as the
engine's own. In each mode `stock` has the engine's wrappers, `graphs` ours and the engine's update,
`both` ours and our update, `control` the engine of `both` with key lengths that are one too small.
`turns` decodes with kernels that do nothing, the engine's wrappers and ours in turns of one
process. Rows go to build/engines/vllm-graphs.json.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.running.stopwatch import least_disturbed
from engines.vllm.session import (
    STEPS_OF_TURN,
    TURNS,
    StepStopwatch,
    Variant,
    describe,
    generate,
    make_engine,
    run_load,
    run_session,
    run_turns,
    runner_of,
)
from engines.vllm.workers.worker_counts import COUNTED

import cann_sim

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

PLUGINS = (
    "npu_graph",  # in place of `ascend`
    "ascend_kv_connector",
    "ascend_model",
    "ascend_model_loader",
    "ascend_service_profiling",
    "cann_sim",
)
KEYS: dict[str, dict[str, Any]] = {
    "stock": {"worker": False},
    "graphs": {"key": {"graphs": True, "attention": False}},
    "both": {"key": {"graphs": True}},
}
VARIANTS = (
    ("FULL_DECODE_ONLY", ("stock", "graphs", "both")),
    ("PIECEWISE", ("stock", "graphs")),
    ("FULL_AND_PIECEWISE", ("stock", "both")),
)
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("preempted", "captures", "full_steps", "waits_in_full_steps", *COUNTED), ""),
    **{name: form for name, form in TOKEN_COLUMNS.items() if "token" not in name},
    "num_tokens": "",
    "equal_tokens": "",
}


def run_tokens(
    variant: Variant, checkpoint: Path, count: int, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row, and that of the control if there is one."""
    before = cann_sim.counters().captures
    made = run_load(variant, checkpoint, count, rows)
    captures = cann_sim.counters().captures - before
    return [row | described(variant) | {"name": row["name"], "captures": captures} for row in made]


def run_full_turns(
    variant: Variant, checkpoint: Path, count: int, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Decode with FULL graphs of the engine and ours in turns; return a row for each."""
    made = run_turns(variant, checkpoint, count, rows)
    return [row | described(variant) | {"name": row["name"]} for row in made]


def run_piece_turns(
    variant: Variant, checkpoint: Path, _count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Decode with pieces of the engine and ours in turns; return a row for each.

    One engine has wrappers of ours; in the turns of the engine they do what the class does from
    which they inherit.
    """
    os.environ["CANN_SIM_KERNELS"] = "null"
    llm = make_engine(variant, checkpoint)
    # After the engine, whose modules import each other.
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    from vllm_npu_graph.v0_23.runtime_graphs import RuntimeGraphs

    runner = runner_of(llm)
    calls = {"ours": RuntimeGraphs.__call__, "stock": ACLGraphWrapper.__call__}
    setattr(RuntimeGraphs, "__call__", calls["stock"])  # noqa: B010 - a method of a class
    NPUModelRunner.capture_model(runner)
    watch = StepStopwatch(runner, "PIECEWISE")
    watch.wrap(runner, "_model_forward", "update")
    watch.wrap_step(llm.llm_engine, "step")
    made = []
    for count in variant.timed:
        taken: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
        counted = {}
        for turn in range(TURNS):
            for name, call in calls.items():
                setattr(RuntimeGraphs, "__call__", call)  # noqa: B010
                watch.steps.clear()
                before = cann_sim.counters()
                generate(llm, [[1 + turn] * 8] * count, [STEPS_OF_TURN] * count)
                counted[name] = cann_sim.counters() - before
                taken[name].append(watch.steps[2:])
        for name, turns in taken.items():
            parts = least_disturbed(turns)
            figures = {each: getattr(counted[name], each) for each in COUNTED}
            row = {**described(variant), "name": name, "sequences": count, **figures}
            forward = {"step_us": parts["step"], "update_us": parts["update"]}
            made.append(row | forward | {"parts_us": {"model forward": parts["update"]}})
    return made


def described(variant: Variant) -> dict[str, Any]:
    """Return the first fields of a variant's row; rows of one mode are compared."""
    return {**describe(variant), "dtype": f"{variant.dtype}, {variant.mode}"}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if theirs is None:
            continue
        names = ("full_steps", "replays", "launches") + ("captures",) * (row["name"] != "control")
        expected = {name: theirs[name] for name in names}
        expected["synchronisations"] = theirs["synchronisations"]
        if row["name"] == "control":
            expected["synchronisations"] = theirs["synchronisations_of_second_load"]
        if row["name"] in {"both", "control"}:
            expected["synchronisations"] -= theirs["full_steps"]
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants selected by the options."""
    made = functools.partial(Variant, dtype="bfloat16")
    timed = tuple(options.timed_sequences)
    return [
        *[
            made(name=name, num_layers=options.layers, mode=mode, **KEYS[name])
            for mode, names in VARIANTS
            for name in names
        ],
        *[
            made(name="turns", num_layers=layers, mode=mode, timed=timed, key=KEYS[name]["key"])
            for layers in options.timed_layers
            for mode, name in (("FULL_DECODE_ONLY", "both"), ("PIECEWISE", "graphs"))
        ],
    ]


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
    turns = run_piece_turns if variant.mode == "PIECEWISE" else run_full_turns
    run = turns if variant.timed else run_tokens
    call = functools.partial(run, variant, checkpoint, options.sequences, rows)
    return run_forked(call, described(variant), options.out.with_name(f"vllm-graphs-{number}.log"))


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-graphs", __doc__)
    parser.set_defaults(layers=2, timed_layers=[28], timed_sequences=[4, 16])
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(
        variants, options, run_apart, COLUMNS, verdict, VLLM_PLUGINS=",".join(PLUGINS)
    )


if __name__ == "__main__":
    sys.exit(main())
