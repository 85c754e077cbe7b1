"""vLLM-Ascend on simulated CANN with speculative decoding: the engine alone, and with our parts.

Run as ``cann-sim run -- python engines/vllm_drafts.py``. Drafts are made by looking the last tokens
up in what was decoded before (``ngram``), or by an EAGLE-3 head of random weights (``eagle3``). Our
attention update leaves such engines alone (`ours`); our graphs capture and replay the steps that
verify (`graphs`). Tokens have to be those of `stock`, and so does the number of steps, which a
wrong verification would change. Rows go to build/engines/vllm-drafts.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from decode_load import compare_load
from forked_variant import run_forked
from session_rows import beside_stock, find_errors, find_unexpected, find_wrong_tokens, judgements
from session_run import make_parser
from tiny_models import write_model
from vllm_models import COLUMNS, KEYS, ModelVariant, described
from vllm_session import make_engine, measure_engine, run_session

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

LAYERS = 4  # the draft reads three of them
METHODS = ("ngram", "eagle3")
NAMES = ("stock", "ours", "graphs", "transformers")
COMPARED = ("preempted", "full_steps", "replays", "task_updates", "synchronisations")


def run_tokens(
    variant: ModelVariant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load and return the variant's row."""
    method = variant.model.rpartition(" ")[2]
    speculative: dict[str, Any] = {"method": method, "num_speculative_tokens": 2}
    if method == "ngram":
        speculative |= {"prompt_lookup_max": 2, "prompt_lookup_min": 1}
    else:
        speculative["model"] = str(checkpoint.with_name("draft"))
    llm = make_engine(variant, checkpoint, speculative_config=speculative)
    row = measure_engine(llm, variant, compare_load(count))[0]
    row["note"] = f"{row['full_steps']} steps replayed a whole graph"
    if variant.name == "ours":
        row["note"] += "; drafts are left to the engine, and so is the update"
    return [row | described(variant) | {"name": row["name"]}]


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong; nothing is missing if it is empty."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if theirs is not None and row["name"] != "stock":
            wrong += find_unexpected(row, what, {name: theirs[name] for name in COMPARED})
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants that a run was asked for."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=LAYERS,
            model=f"Qwen3, drafts by {method}",
            **KEYS.get(name, {}),
        )
        for method in options.methods
        for name in NAMES
    ]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists():
        import torch
        from tiny_eagle3 import write_draft

        write_model(variant, checkpoint)
        write_draft(folder / "draft", dtype=torch.bfloat16)
    call = functools.partial(run_tokens, variant, checkpoint, options.sequences, rows)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judgements, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-drafts", __doc__)
    parser.set_defaults(sequences=200)
    parser.add_argument("--methods", nargs="*", default=["ngram"], choices=METHODS)
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
