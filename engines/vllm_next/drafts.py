"""vLLM 0.30.0 and vllm-ascend 0.30.0rc2 on simulated CANN with speculative decoding.

Run as ``cann-sim run -- python -m engines.vllm_next.drafts``. Drafts are found in earlier tokens
(``ngram``), or made by an EAGLE-3 head of random weights (``eagle3``) or a DeepSeek's own layer
(``mtp``), whose steps the engine captures into one graph. `stock` is the engine alone; in `ours`
the lane updates the graphs that verify and that of the draft. In `control` the steps that verify
have key lengths that are one too small: other tokens. In `draft control` those of the draft have:
since each draft is verified, the tokens are the same and the drafts are others. Rows go to
build/engines/vllm-next-drafts.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.session_rows import (
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.drafts import (
    LAYERS,
    METHODS,
    SIZES,
    count_accepted,
    method_of,
    speculation,
    write_checkpoints,
)
from engines.vllm.session import generate, run_session, runner_of, worker_of
from engines.vllm.workers import worker_counts, worker_drafts
from engines.vllm_next.models import install_for
from engines.vllm_next.session import COLUMNS as SESSION_COLUMNS
from engines.vllm_next.session import (
    MODES,
    graphs_of,
    is_full_step,
    measure_steps,
    measure_with_control,
    run_apart,
    shift_graphs,
    start_engine,
    stock_and_ours,
)
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from engines.vllm.models import ModelVariant

COLUMNS = {"accepted": "", **SESSION_COLUMNS}
LEAST_EQUAL = 0.99
COMPARED = ("preempted", "full_steps", "accepted", "replays")


def run_tokens(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load and return the variant's row; with ours, also those of the controls."""
    method = method_of(variant)
    given = {"speculative_config": speculation(method, checkpoint)}
    llm = start_engine(variant, checkpoint, functools.partial(install_for, variant), **given)
    runner, worker = runner_of(llm), worker_of(llm)
    measure = functools.partial(
        measure_drafts,
        llm,
        variant,
        count,
        drafts=method != "ngram",
        step=(runner, "_model_forward"),
        is_full=is_full_step,
    )
    shifts = {
        "mtp": lambda: worker_counts.shift_draft_lengths(worker, -1),
        "eagle3": lambda: shift_graphs(graphs_of(runner.drafter._runnable), -1),
    }
    return measure_with_control(llm, measure, shifts.get(method))


def measure_drafts(
    llm: Any, variant: ModelVariant, count: int, *, drafts: bool, **given: Any
) -> dict[str, Any]:
    """Run the load; return its row, with the drafts if a model drafts.

    Args:
        llm: The engine.
        variant: Of the session.
        count: Number of sequences.
        drafts: Whether a model drafts.
        given: Of `measure_steps`.
    """
    accepted = count_accepted(llm)
    if drafts:
        worker_drafts.begin_keeping(worker_of(llm))
    row = measure_steps(
        llm, variant, lambda: {"tokens": generate(llm, *compare_load(count))}, **given
    )
    if drafts:
        row["drafts"] = worker_drafts.end_keeping(worker_of(llm))
    return row | {"accepted": sum(accepted)}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        if not is_moved(row, theirs):
            wrong += find_wrong_tokens(row, what)
        wrong += find_wrong_drafts(row, theirs, what)
        if theirs is not None and row["name"] == "ours":
            # The engine waits before each step that verifies; it does not wait for its draft.
            saved, name = theirs["full_steps"], "waits_in_full_steps"
            expected = {each: theirs[each] for each in COMPARED}
            expected |= {each: theirs[each] - saved for each in (name, "synchronisations")}
            wrong += find_unexpected(row, what, expected)
    return wrong


def find_wrong_drafts(row: dict[str, Any], theirs: dict[str, Any] | None, what: str) -> list[str]:
    """Return the errors in the drafts of a row, beside those of the stock engine."""
    wrong = []
    # After wrong tokens a small load may accept none.
    has_accepted = row.get("accepted") != 0 or row["name"] == "control"
    if row["full_steps"] == 0 or not has_accepted:
        wrong.append(f"{what}: no step was a whole graph, or no draft was accepted")
    if row["name"] == "ours" and "updater" not in row:
        wrong.append(f"{what}: its attention is left to the engine")
    if theirs is None or row["name"] not in {"ours", "draft control"}:
        return wrong
    if (row.get("drafts") == theirs.get("drafts")) == (row["name"] == "draft control"):
        wrong.append(f"{what}: its drafts are {'' if row['name'] != 'ours' else 'not '}stock's")
    return wrong


def is_moved(row: dict[str, Any], theirs: dict[str, Any] | None) -> bool:
    """Return whether wrong drafts changed which sequences are preempted, and hardly any token.

    A preempted sequence is prefilled again, and prefill of latent attention rounds otherwise than
    decode: one of two tokens that are nearly equally likely may change.
    """
    return (
        row["name"] == "draft control"
        and theirs is not None
        and row["preempted"] != theirs["preempted"]
        and row["equal_tokens"] >= LEAST_EQUAL * row["num_tokens"]
    )


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        variant
        for method in options.methods
        for variant in stock_and_ours(
            MODES,
            model=f"{METHODS[method]}, drafts by {method}",
            num_layers=LAYERS[method],
            capture_sizes=SIZES,
        )
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-drafts", __doc__)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    variants = choose_variants(options)
    run = functools.partial(run_apart, load=run_tokens, write=write_checkpoints)
    return run_session(variants, options, run, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
