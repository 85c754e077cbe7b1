"""Memory that vLLM 0.30.0 and vllm-ascend 0.30.0rc2 leave to graphs: the engine's plan and ours.

Run as ``cann-sim run -- python -m engines.vllm_next.kv_budget``. On a small device, an engine gives
all that its plan leaves to the KV cache. After its start, free memory is compared with the plan:
what was free after the profile run, without the KV cache and what was left to graphs. `stock` is
the engine alone, which leaves nothing to graphs. `first` is ours, which measures, also if there are
plans of other models; `second` finds the plan of `first` and captures as few graphs as `stock`;
`other sizes` measures again; `corrupt` and `foreign` find a file that is no plan or another's, say
so, and measure. All decode a load, with the tokens of `stock`: trial captures leave nothing behind.
At most twelve sequences and sizes up to eight leave decode batches without a graph: `stock off
stride` runs them eagerly, `off stride` adds the size. In `limited` the sizes end far below: ours
counts the steps, and a count of the scheduled tokens must agree. Rows go to
build/engines/vllm-next-kv-budget.json.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.models.tiny_models import write_model
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.drafts import LAYERS, method_of, speculation, write_checkpoints
from engines.vllm.models import ModelVariant
from engines.vllm.session import generate, run_session, runner_of, worker_of
from engines.vllm_next.models import install_for
from engines.vllm_next.session import is_full_step, run_apart, start_engine
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

MIB = 2**20
DEVICE_GB = "0.5"
# The engine's own for its largest batch; two of them are captured to forecast all.
SIZES = (1, 2, 4, *range(8, 129, 8))
OTHER_SIZES = SIZES[::2]
TOLERANCE = 3.0
# By model and mode.
RUNS = (
    ("Qwen3", "FULL_DECODE_ONLY"),
    ("Qwen3, wide", "FULL_AND_PIECEWISE"),
    ("Qwen3-MoE", "FULL_AND_PIECEWISE"),
    ("DeepSeek", "FULL_DECODE_ONLY"),
    ("Mistral, window of 64", "FULL_DECODE_ONLY"),
    ("Qwen3, drafts by eagle3", "FULL_DECODE_ONLY"),
)
NAMES = ("stock", "first", "second")
# Capture sizes of an engine of twelve sequences.
LIMITS = {"stock off stride": (1, 2, 4, 8), "off stride": (1, 2, 4, 8), "limited": (1,)}
MOST = 12
# Of the first model.
FURTHER_NAMES = ("other sizes", "corrupt", "foreign", *LIMITS)
MEASURING = ("first", *FURTHER_NAMES)
MISSING = ("stock off stride", "limited")
SAME_SIZES = ("first", "second", "corrupt", "foreign")
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("captures", "is_measured", "ignored"), ""),
    **dict.fromkeys(("full_steps", "eager_decode_steps", "counted_missed"), ""),
    **dict.fromkeys(("cache_mib", "graphs_planned_mib", "graphs_taken_mib"), ".1f"),
    **dict.fromkeys(("planned_free_mib", "free_mib"), ".1f"),
    "off_percent": "+.2f",
    **TOKEN_COLUMNS,
}


def run_start(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Start the engine, decode a load, and return the figures of the start."""
    folder = checkpoint.parents[1] / "cache"  # of all models
    os.environ |= {"CANN_SIM_MEMORY_GB": DEVICE_GB, "VLLM_CACHE_ROOT": str(folder)}
    os.environ["VLLM_LOG_STATS_INTERVAL"] = "0.1"  # a table for a load of seconds
    if variant.name in {"corrupt", "foreign"}:
        spoil_plans(folder, is_foreign=variant.name == "foreign")
    given: dict[str, Any] = {}
    if "drafts" in variant.model:
        given["speculative_config"] = speculation(method_of(variant), checkpoint)
    if variant.name in LIMITS:
        sizes = list(LIMITS[variant.name])
        given["compilation_config"] = {"cudagraph_capture_sizes": sizes}
    seen: dict[str, int] = {}
    install = functools.partial(install_watch, variant, seen)
    with logged_lines() as lines:
        llm = start_engine(variant, checkpoint, install, **given)
        row = describe_memory(llm, seen)
        steps = watch_steps(llm)
        tokens = generate(llm, *compare_load(count))
    hits = getattr(runner_of(llm), "graph_hits", None)
    return [
        {
            "name": variant.name,
            "sequences": count,
            "tokens": tokens,
            **row,
            **steps,
            "counted_full": None if hits is None else hits.steps["FULL"],
            "counted_missed": "" if hits is None else hits.missed.total(),
            "ignored": sum("ignores the plan" in line for line in lines),
            "tables": sum("Unpadded Tokens" in line for line in lines),
        }
    ]


def describe_memory(llm: Any, seen: dict[str, int]) -> dict[str, Any]:
    """Return the plan of an engine that has started, and what is free.

    Args:
        llm: The engine.
        seen: From `install_watch`.
    """
    from vllm.compilation.counter import compilation_counter

    budget = getattr(worker_of(llm), "graph_budget", None)
    planned = 0 if budget is None else budget.planned or 0
    free, expected = read_free(), seen["free"] - seen["cache"] - planned
    return {
        "captures": compilation_counter.num_cudagraph_captured,
        "is_measured": budget is not None and budget.is_measured,
        "cache_mib": seen["cache"] / MIB,
        "graphs_planned_mib": planned / MIB,
        "graphs_taken_mib": (seen["free"] - seen["cache"] - free) / MIB,
        "planned_free_mib": expected / MIB,
        "free_mib": free / MIB,
        "off_percent": 100 * (free - expected) / expected,
    }


def watch_steps(llm: Any) -> dict[str, int]:
    """Return a mapping that counts the steps from now on, by what is scheduled and replayed."""
    runner, steps = runner_of(llm), {"full_steps": 0, "eager_decode_steps": 0}
    execute, forward = runner.execute_model, runner._model_forward
    most = runner.compilation_config.max_cudagraph_capture_size

    def watched_execute(output: Any, *args: Any) -> Any:
        each = [*output.num_scheduled_tokens.values()]
        is_decode = {*each} == {runner.uniform_decode_query_len}
        steps["eager_decode_steps"] += is_decode and sum(each) > most
        return execute(output, *args)

    def watched_forward(*args: Any, **kwargs: Any) -> Any:
        steps["full_steps"] += is_full_step()
        return forward(*args, **kwargs)

    runner.execute_model, runner._model_forward = watched_execute, watched_forward
    return steps


def install_watch(variant: ModelVariant, seen: dict[str, int]) -> None:
    """Replace what cannot run, and note what the engine's own worker has left and allocates."""
    install_for(variant)
    from vllm_ascend.worker.worker import NPUWorker

    determine, initialize = NPUWorker.determine_available_memory, NPUWorker.initialize_from_config

    def watched_determine(self: Any) -> Any:
        available = determine(self)
        seen["free"] = read_free()
        return available

    def watched_initialize(self: Any, config: Any) -> None:
        initialize(self, config)
        seen["cache"] = sum(each.size for each in config.kv_cache_tensors)

    NPUWorker.determine_available_memory = watched_determine
    NPUWorker.initialize_from_config = watched_initialize


def read_free() -> int:
    """Return the free bytes of the device, with those that the allocator has and graphs do not.

    The engine has the allocator map pages of 20 MiB, of which the KV cache may leave a part unused.
    """
    import torch

    torch.npu.synchronize()
    torch.npu.empty_cache()
    segments = torch.npu.memory_snapshot()
    pools = [each for each in segments if tuple(each["segment_pool_id"]) == (0, 0)]
    unused = sum(each["total_size"] - each["allocated_size"] for each in pools)
    return int(torch.npu.mem_get_info()[0]) + unused


@contextlib.contextmanager
def logged_lines() -> Iterator[list[str]]:
    """Yield a list that gets the lines that our package logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.npu_graph")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def spoil_plans(folder: Path, *, is_foreign: bool) -> None:
    """Replace the content of all plans, by a part of it or by that of another start."""
    plans = sorted((folder / "npu_graph_plans").iterdir())
    assert plans, "no plan was kept"
    for path in plans:
        other = {"format": 1, "factors": {"vllm": "another"}, "num_bytes": 1}
        text = json.dumps(other)
        path.write_text(text if is_foreign else text[: len(text) // 2])


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if row["name"].startswith("stock"):
            if row["name"] in MISSING and row["eager_decode_steps"] == 0:
                wrong.append(f"{what}: no decode step was beyond the sizes")
        elif theirs is not None:
            wrong += [f"{what}: {fault}" for fault in find_wrong_plan(row, theirs)]
            wrong += [f"{what}: {fault}" for fault in find_wrong_counts(row)]
    return wrong


def find_wrong_plan(row: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return what is wrong with the plan of a row, beside the stock engine's."""
    wrong, is_measuring = [], row["name"] in MEASURING
    if abs(row["off_percent"]) > TOLERANCE:
        wrong.append(f"free memory is {row['off_percent']:+.2f} % off its plan")
    if row["name"] in NAMES and abs(row["off_percent"]) > abs(theirs["off_percent"]):
        wrong.append(f"its plan is further off than stock's, {theirs['off_percent']:+.2f} %")
    if row["is_measured"] != is_measuring:
        wrong.append(f"it measured: {row['is_measured']}, expected {is_measuring}")
    # Sizes of their own have other numbers of graphs.
    if row["name"] in SAME_SIZES and (row["captures"] > theirs["captures"]) != is_measuring:
        wrong.append(f"{row['captures']} captures, stock has {theirs['captures']}")
    if row["ignored"] != (row["name"] in {"corrupt", "foreign"}):
        wrong.append(f"{row['ignored']} plans were ignored")
    return wrong


def find_wrong_counts(row: dict[str, Any]) -> list[str]:
    """Return what is wrong with the counted steps of a row."""
    wrong = [
        f"counted {row[own]}, expected {row[other]} {other}"
        for own, other in (("counted_full", "full_steps"), ("counted_missed", "eager_decode_steps"))
        if row[own] != row[other]
    ]
    if (row["eager_decode_steps"] > 0) != (row["name"] in MISSING):
        wrong.append(f"{row['eager_decode_steps']} decode steps had no graph")
    if row["tables"] == 0:
        wrong.append("no table of the steps was logged")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=LAYERS["eagle3"] if "eagle3" in model else options.layers,
            mode=mode,
            model=model,
            # All blocks that fit are allocated with it.
            timed=choose_sizes(name, model),
            worker=not name.startswith("stock"),
            key=False if name.startswith("stock") else {"plan": True},
        )
        for number, (model, mode) in enumerate(RUNS)
        for name in (*NAMES, *(FURTHER_NAMES if number == 0 else ()))
        if options.runs is None or number in options.runs
    ]


def choose_sizes(name: str, model: str) -> tuple[int, ...]:
    """Return the capture sizes of a variant, in tokens; each sequence has its drafts' too."""
    if name in LIMITS:
        return (MOST,)
    if name == "other sizes":
        return OTHER_SIZES
    return tuple(3 * size for size in SIZES[:12]) if "drafts" in model else SIZES


def write_models(variant: ModelVariant, checkpoint: Path) -> None:
    """Write the model of a variant, and its draft."""
    (write_checkpoints if "drafts" in variant.model else write_model)(variant, checkpoint)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-kv-budget", __doc__)
    parser.set_defaults(layers=2, sequences=12)
    parser.add_argument("--runs", type=int, nargs="*", help="numbers in RUNS")
    options = parser.parse_args()
    variants = choose_variants(options)
    run = functools.partial(run_apart, load=run_start, write=write_models)
    return run_session(variants, options, run, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
