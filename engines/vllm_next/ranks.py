"""vLLM 0.30.0 and vllm-ascend 0.30.0rc2 on simulated CANN with two processes for one model.

Run as ``cann-sim run -- python -m engines.vllm_next.ranks``. The engine starts two workers, each
with a simulated device of its own, which hold a half of every layer (tensor parallelism); with DCP
a half of the keys of each sequence too, once with drafts. `stock` is the engine alone, `ours` has
our attention update, and `control` is the engine of `ours` once more with key lengths that are one
too small on both ranks. Rows go to build/engines/vllm-next-ranks.json.
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
from engines.vllm import drafts
from engines.vllm.graphs import PLUGINS
from engines.vllm.models import COLUMNS, ModelVariant
from engines.vllm.ranks import LONGEST_SECONDS, RANKS
from engines.vllm.session import Variant, measure_engine, run_session
from engines.vllm_next.models import install_for
from engines.vllm_next.session import MODES, run_apart, shift_worker, start_engine, stock_and_ours
from engines.vllm_next.without_device import context_parallel, stand_ins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable
    from pathlib import Path

DRAFTS = "Qwen3, DCP, drafts by ngram"
MODELS = ("Qwen3", "Qwen3-MoE", "DeepSeek", "Qwen3, DCP", "DeepSeek, DCP", DRAFTS)
ENVIRONMENT = {"CANN_SIM_DEVICES": str(RANKS), "VLLM_PLUGINS": ",".join(PLUGINS)}


def run_tokens(
    variant: ModelVariant,
    checkpoint: Path,
    count: int,
    install: Callable[[ModelVariant], None] = install_for,
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    given: dict[str, Any] = {}
    if variant.model == DRAFTS:
        # A step is a FULL graph only if a draft is found for all sequences.
        given["max_num_seqs"] = 2
        given["speculative_config"] = drafts.speculation(drafts.method_of(variant), checkpoint)
    llm = start_engine(
        variant, checkpoint, functools.partial(install_for_ranks, variant, install), **given
    )
    return measure_engine(llm, variant, compare_load(count), shift_worker)


def install_for_ranks(variant: ModelVariant, install: Callable[[ModelVariant], None]) -> None:
    """Also replace what joins the parts of attention."""
    install(variant)
    if variant.decode_parts > 1:
        context_parallel.install()


def verdict(rows: list[dict[str, Any]], waits: int = 1) -> list[str]:
    """Return the failures; empty if all is right.

    Args:
        rows: Of the session.
        waits: Of the engine alone, in a step of a whole graph.
    """
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if row["full_steps"] == 0:
            wrong.append(f"{what}: no step replayed a whole graph")
        if row["name"] == "ours" and "updater" not in row:
            wrong.append(f"{what}: its attention is left to the engine")
        if theirs is not None and row["name"] == "ours":
            expected = {name: theirs[name] for name in ("preempted", "full_steps", "replays")}
            saved = waits * theirs["full_steps"]
            expected["synchronisations"] = theirs["synchronisations"] - saved
            wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace, modes: Iterable[str]) -> list[ModelVariant]:
    """Return the variants of the models selected by the options, in some modes."""
    return [
        variant
        for model in options.models
        for variant in stock_and_ours(
            modes,
            model=model,
            num_layers=options.layers,
            ranks=RANKS,
            decode_parts=RANKS if "DCP" in model else 1,
            prefill_parts=RANKS if "PCP" in model else 1,
            capture_sizes=drafts.SIZES if model == DRAFTS else Variant.capture_sizes,
        )
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-ranks", __doc__)
    parser.set_defaults(layers=2)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    return run_session(
        choose_variants(options, MODES),
        options,
        functools.partial(run_apart, load=run_tokens, limit=LONGEST_SECONDS),
        COLUMNS,
        verdict,
        prepare=stand_ins.prepare,
        **ENVIRONMENT,
    )


if __name__ == "__main__":
    sys.exit(main())
