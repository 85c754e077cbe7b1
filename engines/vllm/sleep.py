"""vLLM-Ascend's sleep mode on simulated CANN: sleep, wake, new weights; its update and ours.

Run as ``cann-sim run -- python -m engines.vllm.sleep``. An engine decodes the load, sleeps at level
1, which keeps its weights on the host, wakes, decodes the load again, sleeps at level 2, which
keeps nothing, is given other weights, wakes, and decodes the load once more. Its graphs are kept
while it sleeps, or released and captured again (``enable_sleep_mode_extra_cleanup``). `stock` is
the engine without this repository, `ours` has our attention update, `both` also our graphs,
`control` is the engine of `ours` once more, with key lengths that are one too small, and `fresh`
one that had the other weights from the start. The allocator is the engine's own
(`engines/vllm/without_device/allocator.py`). Rows go to build/engines/vllm-sleep.json.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.models import KEYS
from engines.vllm.session import (
    Variant,
    describe,
    make_engine,
    measure_load,
    run_session,
    worker_of,
)
from engines.vllm.without_device import allocator
from engines.vllm.workers import worker_counts

if TYPE_CHECKING:
    import argparse

AWAKE, WOKEN, OTHER = "awake", "woken", "woken with other weights"
COLUMNS = {
    **dict.fromkeys(("name", "dtype", "sequences", "preempted", "full_steps"), ""),
    **dict.fromkeys(("waits_in_full_steps", "freed_mib", "num_tokens", "equal_tokens"), ""),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SleepVariant(Variant):
    """One engine to run.

    Attributes:
        captures_again: Whether its graphs are released when it sleeps, and captured again.
    """

    captures_again: bool = False


def described(variant: SleepVariant, phase: str) -> dict[str, Any]:
    """Return the first fields of a row; rows of one phase and one way to sleep are compared."""
    graphs = "graphs captured again" if variant.captures_again else "graphs kept"
    model = f"Qwen3, {variant.dtype}, {phase}, {graphs}"
    return {**describe(variant), "model": model, "mode": variant.mode, "dtype": model}


def load_weights(worker: Any, checkpoint: str) -> None:
    """Load other weights by the engine's own call, which its worker does not expose."""
    worker.model_runner.reload_weights(weights_path=checkpoint)


def sleep(llm: Any, level: int) -> float:
    """Put an engine to sleep; return the MiB that this freed on its device."""
    import torch

    free = torch.npu.mem_get_info()[0]
    llm.sleep(level=level)
    freed: int = torch.npu.mem_get_info()[0] - free
    return round(freed / 2**20, 1)


def run_tokens(
    variant: SleepVariant, checkpoint: Path, other: Path, count: int
) -> list[dict[str, Any]]:
    """Return the rows of an engine, one for each phase; with ours, also that of the control."""
    config = {"weight_nz_mode": 0, "enable_sleep_mode_extra_cleanup": variant.captures_again}
    is_fresh = variant.name == "fresh"
    llm = make_engine(variant, other if is_fresh else checkpoint, config, enable_sleep_mode=True)
    load = compare_load(count)

    def measure(phase: str, **figures: object) -> dict[str, Any]:
        return {**measure_load(llm, variant, load), **described(variant, phase), **figures}

    if is_fresh:
        return [measure(OTHER)]
    rows = [measure(AWAKE)]
    freed = sleep(llm, 1)
    llm.wake_up()
    rows.append(measure(WOKEN, freed_mib=freed))
    freed = sleep(llm, 2)
    llm.wake_up(tags=["weights"])
    llm.collective_rpc(load_weights, args=(str(other),))
    llm.wake_up(tags=["kv_cache"])
    rows.append(measure(OTHER, freed_mib=freed))
    if variant.name == "ours":
        worker_counts.shift_lengths(worker_of(llm), -1)
        rows.append(measure(OTHER, name="control"))
    return rows


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        if row["name"] == "fresh":
            continue
        wrong += find_wrong_tokens(row, what)
        if row.get("freed_mib", 1.0) <= 0:
            wrong.append(f"{what}: asleep it freed no memory")
        if theirs is not None and row["name"] not in {"stock", "control"}:
            expected = {"full_steps": theirs["full_steps"], "waits_in_full_steps": 0}
            wrong += find_unexpected(row, what, expected)
    return wrong + find_forgotten(rows)


def find_forgotten(rows: list[dict[str, Any]]) -> list[str]:
    """Return the loads that show that the stock engine did not wake in the right state."""
    wrong = []
    fresh = [row["tokens"] for row in rows if row["name"] == "fresh" and "tokens" in row]
    stock = [row for row in rows if row["name"] == "stock" and "tokens" in row]
    awake = [row["tokens"] for row in stock if f", {AWAKE}," in row["dtype"]]
    for row in stock:
        wanted = fresh if f", {OTHER}," in row["dtype"] else awake
        if not wanted or any(tokens != row["tokens"] for tokens in wanted):
            wrong.append(f"stock, {row['dtype']}: its tokens are not those of its weights")
    if fresh and awake and fresh[0] == awake[0]:
        wrong.append("the other weights give the same tokens")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[SleepVariant]:
    """Return the variants selected by the options."""
    made = functools.partial(SleepVariant, dtype="bfloat16", num_layers=options.layers)
    fresh = made(name="fresh", worker=False)
    return [
        fresh,
        *[
            made(name=name, captures_again=captures_again, **KEYS[name])
            for captures_again in (False, True)
            for name in ("stock", "ours", "both")
        ],
    ]


def run_apart(
    variant: SleepVariant,
    number: int,
    _rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    import torch
    from engines.models.tiny_qwen3 import write_checkpoint

    checkpoints = [folder / str(seed) for seed in (0, 7)]
    for seed, checkpoint in zip((0, 7), checkpoints, strict=True):
        if not checkpoint.exists():
            dtype = torch.bfloat16
            write_checkpoint(checkpoint, num_layers=variant.num_layers, dtype=dtype, seed=seed)
    call = functools.partial(run_tokens, variant, *checkpoints, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant, AWAKE), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-sleep", __doc__)
    parser.set_defaults(layers=2)
    source = parser.get_default("out").with_name("vllm_ascend-0.23.0.tar.gz")
    parser.add_argument("--source", type=Path, default=source)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        allocator.install(allocator.build(options.source, Path(folder)))
        return run_session(choose_variants(options), options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
