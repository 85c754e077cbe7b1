"""The memory that vLLM 0.30.0 and vllm-ascend 0.30.0rc2 leave to graphs: the engine's plan and ours.

Run as ``cann-sim run -- python -m engines.vllm_next.kv_budget``. On a small device, an engine gives
all that its plan leaves to the KV cache. After its start, free memory is compared with the plan:
what was free after the profile run, without the KV cache and what was left to graphs. `stock` is
the engine alone, which leaves nothing to graphs. `first` is ours, which measures; `second` finds
the plan of `first` and captures as few graphs as `stock`; `other sizes` measures again; `corrupt`
and `foreign` find a file that is no plan or another's, say so, and measure. All decode a load, with
the tokens of `stock`: trial captures leave nothing behind. Rows go to
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
from engines.vllm.session import generate, run_session, worker_of
from engines.vllm_next import stand_ins
from engines.vllm_next.models import install_for
from engines.vllm_next.session import run_apart, start_engine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

MIB = 2**20
DEVICE_GB = "0.5"
SIZES = (1, 2, 4, 8, 16, 24, 32)
OTHER_SIZES = (1, 2, 4, 8, 16, 32)
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
# Of the first model.
FURTHER_NAMES = ("other sizes", "corrupt", "foreign")
MEASURING = ("first", *FURTHER_NAMES)
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("captures", "is_measured", "ignored"), ""),
    **dict.fromkeys(("cache_mib", "graphs_planned_mib", "graphs_taken_mib"), ".1f"),
    **dict.fromkeys(("planned_free_mib", "free_mib"), ".1f"),
    "off_percent": "+.2f",
    **TOKEN_COLUMNS,
}


def run_start(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Start the engine, decode a load, and return the figures of the start."""
    folder = checkpoint.parent / "cache"
    os.environ |= {"CANN_SIM_MEMORY_GB": DEVICE_GB, "VLLM_CACHE_ROOT": str(folder)}
    if variant.name in {"corrupt", "foreign"}:
        spoil_plans(folder, is_foreign=variant.name == "foreign")
    given: dict[str, Any] = {}
    if "drafts" in variant.model:
        given["speculative_config"] = speculation(method_of(variant), checkpoint)
    seen: dict[str, int] = {}
    install = functools.partial(install_watch, variant, seen)
    with logged_lines() as lines:
        llm = start_engine(variant, checkpoint, install, **given)
    from vllm.compilation.counter import compilation_counter

    budget = getattr(worker_of(llm), "graph_budget", None)
    planned = 0 if budget is None else budget.planned
    free, expected = read_free(), seen["free"] - seen["cache"] - planned
    row = {
        "captures": compilation_counter.num_cudagraph_captured,
        "is_measured": budget is not None and budget.is_measured,
        "ignored": sum("ignores the plan" in line for line in lines),
        "cache_mib": seen["cache"] / MIB,
        "graphs_planned_mib": planned / MIB,
        "graphs_taken_mib": (seen["free"] - seen["cache"] - free) / MIB,
        "planned_free_mib": expected / MIB,
        "free_mib": free / MIB,
        "off_percent": 100 * (free - expected) / expected,
    }
    tokens = generate(llm, *compare_load(count))
    return [{"name": variant.name, "sequences": count, "tokens": tokens, **row}]


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
    """Return the free bytes of the device."""
    import torch

    torch.npu.synchronize()
    torch.npu.empty_cache()
    return int(torch.npu.mem_get_info()[0])


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
        text = path.read_text()
        if is_foreign:
            text = json.dumps({**json.loads(text), "factors": {"vllm": "another"}})
        path.write_text(text if is_foreign else text[: len(text) // 2])


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if row["name"] == "stock" or theirs is None:
            continue
        if abs(row["off_percent"]) > TOLERANCE:
            wrong.append(f"{what}: free memory is {row['off_percent']:+.2f} % off its plan")
        is_measuring = row["name"] in MEASURING
        if row["is_measured"] != is_measuring:
            wrong.append(f"{what}: it measured: {row['is_measured']}, expected {is_measuring}")
        # Sizes of their own have other numbers of graphs.
        if row["name"] != "other sizes" and (row["captures"] > theirs["captures"]) != is_measuring:
            wrong.append(f"{what}: {row['captures']} captures, stock has {theirs['captures']}")
        if row["ignored"] != (row["name"] in {"corrupt", "foreign"}):
            wrong.append(f"{what}: {row['ignored']} plans were ignored")
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
            timed=OTHER_SIZES if name == "other sizes" else sizes_of(model),
            worker=name != "stock",
            key=False if name == "stock" else {"plan": True},
        )
        for number, (model, mode) in enumerate(RUNS)
        for name in (*NAMES, *(FURTHER_NAMES if number == 0 else ()))
        if options.runs is None or number in options.runs
    ]


def sizes_of(model: str) -> tuple[int, ...]:
    """Return the capture sizes of a model, in tokens; each sequence has its drafts' too."""
    return tuple(3 * size for size in SIZES) if "drafts" in model else SIZES


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
