"""vLLM-Ascend on simulated CANN with two engines that share experts, one of which has little to do.

Run as ``cann-sim run -- python -m engines.vllm.idle_rank``. Data parallelism: two processes have an
engine each, with attention of its own and a half of the experts' tokens, and exchange those by HCCL
in every step. The first gets most of the load; when the second has no sequence left it runs dummy
steps, or the first would wait for it. `stock` is the engine without this repository, `ours` has our
attention update, `both` also our graphs, `control` is `ours` once more with key lengths that are
one too small on both. Rows go to build/engines/vllm-idle-rank.json.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_rows import judgements
from engines.running.session_run import make_parser
from engines.vllm.models import COLUMNS as MODEL_COLUMNS
from engines.vllm.models import KEYS, ModelVariant, described, verdict
from engines.vllm.session import make_engine, measure_engine, run_session
from engines.vllm.workers import worker_counts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

RANKS = 2
# One of so many sequences goes to the second rank.
SHARE_OF_SECOND = 8
LONGEST_SECONDS = 900
NAMES = ("stock", "ours", "both", "transformers")
COLUMNS = {"dummy_steps": "", **MODEL_COLUMNS}
# What the ranks count together.
ADDED = (
    *("preempted", "full_steps", "waits_in_full_steps", "skipped_updates"),
    *("launches", "replays", "task_updates"),
)


def numbers_of(rank: int, count: int) -> list[int]:
    """Return the numbers of the sequences that a rank gets."""
    return [number for number in range(count) if (number % SHARE_OF_SECOND == 0) == (rank == 1)]


def run_rank(
    rank: int,
    port: int,
    variant: ModelVariant,
    checkpoint: Path,
    count: int,
    out: Any,
    make: Callable[[ModelVariant, Path], Any],
    shift_lengths: Callable[[Any, int], None],
) -> None:
    """Run a rank's part of the load in this process, which is its own, and send its rows."""
    os.environ |= {
        "VLLM_DP_RANK": str(rank),
        "VLLM_DP_SIZE": str(RANKS),
        "VLLM_DP_MASTER_PORT": str(port),
    }
    llm = make(variant, checkpoint)
    prompts, lengths = compare_load(count)
    numbers = numbers_of(rank, count)
    load = [prompts[number] for number in numbers], [lengths[number] for number in numbers]
    core, dummies = llm.llm_engine.engine_core, []
    step = core.execute_dummy_batch

    def counted() -> None:
        dummies.append(rank)
        step()

    core.execute_dummy_batch = counted
    rows = measure_engine(llm, variant, load, shift_lengths)
    # Each load has as many.
    loads = max(len(rows), 1 + ("synchronisations_of_second_load" in rows[0]))
    out.send([{**row, "dummy_steps": len(dummies) / loads} for row in rows])


def run_ranks(
    variant: ModelVariant,
    checkpoint: Path,
    count: int,
    make: Callable[[ModelVariant, Path], Any] = make_engine,
    shift_lengths: Callable[[Any, int], None] = worker_counts.shift_lengths,
) -> list[dict[str, Any]]:
    """Run all ranks of a variant, and return its row and that of the control where it has one.

    Args:
        variant: Of the session.
        checkpoint: Of the model.
        count: Number of sequences.
        make: Creates the engine of a rank.
        shift_lengths: Changes the key lengths in the steps of a worker, for the control.
    """
    from vllm.utils.network_utils import get_open_port

    context = multiprocessing.get_context("fork")
    port, found = get_open_port(), []
    for rank in range(RANKS):
        receive, send = context.Pipe(duplex=False)
        given = (rank, port, variant, checkpoint, count, send, make, shift_lengths)
        context.Process(target=run_rank, args=given).start()
        send.close()
        found.append(receive)
    of_ranks = [receive.recv() for receive in found]
    made = [
        join_ranks(rows, count) | described(variant) | {"name": rows[0]["name"], "ranks": RANKS}
        for rows in zip(*of_ranks, strict=True)
    ]
    return made[:1] if variant.name == "both" else made


def join_ranks(rows: tuple[dict[str, Any], ...], count: int) -> dict[str, Any]:
    """Return the row of both ranks: the tokens in the order of the load, and the sums."""
    tokens: list[list[int]] = [[]] * count
    for rank, row in enumerate(rows):
        for number, given in zip(numbers_of(rank, count), row["tokens"], strict=True):
            tokens[number] = given
    names = [*ADDED, "dummy_steps", "synchronisations", "synchronisations_of_second_load"]
    sums = {name: sum(row[name] for row in rows) for name in names if name in rows[0]}
    return {**rows[0], "tokens": tokens, "sequences": count, **sums}


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    idle = [row for row in rows if "tokens" in row and row["dummy_steps"] == 0]
    return verdict(rows) + [f"{row['name']}: no rank was idle" for row in idle]


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            model="Qwen3-MoE, data parallel",
            **KEYS.get(name, {}),
        )
        for name in NAMES
    ]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in processes forked from this one, and return its rows."""
    checkpoint = folder / variant.model
    if not checkpoint.exists():
        write_model(variant, checkpoint)
    call = functools.partial(run_ranks, variant, checkpoint, options.sequences)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judgements, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log, LONGEST_SECONDS)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-idle-rank", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, find_wrong)


if __name__ == "__main__":
    sys.exit(main())
