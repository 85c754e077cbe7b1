"""vLLM-Ascend on simulated CANN with speculative decoding: the engine alone, and with our parts.

Run as ``cann-sim run -- python -m engines.vllm.drafts``. Drafts are made by looking the last tokens
up in what was decoded before (``ngram``), or by an EAGLE-3 head of random weights (``eagle3``),
whose steps the engine captures into one graph; those of a DeepSeek by a layer of its own (``mtp``).
`ours` updates the attention of the steps that verify, and of the draft; `graphs` captures and
replays the former by our graphs, and `both` does both. Tokens and drafts have to be those of
`stock`, and so do the numbers of steps and of drafted tokens that were accepted. In `control` the
steps that verify have key lengths that are one too small: other tokens. In `draft control` those of
the draft do: since each draft is verified the tokens are the same, and the drafts are others. Rows
go to build/engines/vllm-drafts.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import MOST_SEQUENCES, compare_load
from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
    judgements,
)
from engines.running.session_run import make_parser
from engines.vllm.models import COLUMNS, KEYS, ModelVariant, described
from engines.vllm.session import make_engine, measure_load, run_session
from engines.vllm.workers import worker_counts, worker_drafts

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

# Of which model the method drafts for.
METHODS = {"ngram": "Qwen3", "eagle3": "Qwen3", "mtp": "DeepSeek"}
LAYERS = {"ngram": 4, "eagle3": 4, "mtp": 2}  # EAGLE-3 reads three of them
NAMES = ("stock", "ours", "graphs", "both", "transformers")
DRAFTED = 2
SIZES = tuple(count * (1 + DRAFTED) for count in (1, 2, 4, 8, MOST_SEQUENCES))
COMPARED = ("preempted", "steps", "full_steps", "accepted", "replays")


def run_tokens(
    variant: ModelVariant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load and return the variant's row; with ours, also those of the controls."""
    method = method_of(variant)
    llm = make_engine(variant, checkpoint, speculative_config=speculation(method, checkpoint))
    rows = [measure_drafts(llm, variant, count, method)]
    if variant.name == "ours":
        if method != "ngram":
            llm.collective_rpc(worker_counts.shift_draft_lengths, args=(-1,))
            rows.append(measure_drafts(llm, variant, count, method) | {"name": "draft control"})
        llm.collective_rpc(worker_counts.shift_lengths, args=(-1,))
        rows.append(measure_drafts(llm, variant, count, method) | {"name": "control"})
    return rows


def method_of(variant: ModelVariant) -> str:
    """Return how a variant drafts."""
    return variant.model.rpartition(" ")[2]


def speculation(method: str, checkpoint: Path, drafted: int = DRAFTED) -> dict[str, Any]:
    """Return the engine's configuration of a method that drafts so many tokens."""
    made: dict[str, Any] = {"method": method, "num_speculative_tokens": drafted}
    if method == "ngram":
        made |= {"prompt_lookup_max": 2, "prompt_lookup_min": 1}
    elif method in {"eagle3", "dflash"}:
        made["model"] = str(checkpoint.with_name("draft"))
    return made


def measure_drafts(llm: Any, variant: ModelVariant, count: int, method: str) -> dict[str, Any]:
    """Run the load; return its row, with the drafts if a model drafts."""
    accepted = count_accepted(llm)
    if method != "ngram":
        llm.collective_rpc(worker_drafts.begin_keeping)
    row = measure_load(llm, variant, compare_load(count)) | described(variant)
    if method != "ngram":
        row["drafts"] = llm.collective_rpc(worker_drafts.end_keeping)[0]
    row["accepted"] = sum(accepted)
    row["note"] = (
        f"{row['steps']} steps, {row['full_steps']} of them whole graphs; {row['accepted']} "
        "drafted tokens accepted"
    )
    return row


def count_accepted(llm: Any) -> list[int]:
    """Return a list to which the number of accepted drafts per sequence and step is appended."""
    scheduler, accepted = llm.llm_engine.engine_core.engine_core.scheduler, []
    make = type(scheduler).make_spec_decoding_stats.__get__(scheduler)

    def counted(*args: Any, **kwargs: Any) -> Any:
        accepted.append(kwargs["num_accepted_tokens"])
        return make(*args, **kwargs)

    scheduler.make_spec_decoding_stats = counted
    return accepted


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        # After wrong tokens a small load may accept none.
        has_accepted = row["accepted"] > 0 or row["name"] == "control"
        if row["full_steps"] == 0 or not has_accepted:
            wrong.append(f"{what}: no step was a whole graph, or no draft was accepted")
        if theirs is None or row["name"] in {"stock", "control"}:
            continue
        if row["name"] == "draft control":
            if row["drafts"] == theirs["drafts"]:
                wrong.append(f"{what}: its drafts are those of stock")
            continue
        if row.get("drafts") != theirs.get("drafts"):
            wrong.append(f"{what}: its drafts are not those of stock")
        # One wait less for each step that verifies; the engine does not wait for its draft.
        saved = 0 if row["name"] == "graphs" else theirs["full_steps"]
        expected = {
            **{name: theirs[name] for name in COMPARED},
            "task_updates": theirs["task_updates"] - row["skipped_updates"],
            "synchronisations": theirs["synchronisations"] - saved,
            "waits_in_full_steps": theirs["waits_in_full_steps"] - saved,
        }
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=LAYERS[method],
            model=f"{METHODS[method]}, drafts by {method}",
            capture_sizes=SIZES,
            **KEYS.get(name, {}),
        )
        for method in options.methods
        for name in NAMES
    ]


def write_checkpoints(variant: ModelVariant, checkpoint: Path) -> None:
    """Write the model of a variant, and its draft beside it or into it."""
    import torch
    from engines.models import tiny_deepseek, tiny_dflash, tiny_eagle3

    method, draft = method_of(variant), checkpoint.with_name("draft")
    write_model(variant, checkpoint)
    if method == "eagle3":
        tiny_eagle3.write_draft(draft, dtype=torch.bfloat16, target=checkpoint)
    elif method == "dflash":
        tiny_dflash.write_draft(draft, dtype=torch.bfloat16, target=checkpoint)
    elif method == "mtp":
        tiny_deepseek.add_draft(checkpoint, dtype=torch.bfloat16)


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    checkpoint = folder / method_of(variant) / "checkpoint"
    if not checkpoint.exists():
        checkpoint.parent.mkdir()
        write_checkpoints(variant, checkpoint)
    call = functools.partial(run_tokens, variant, checkpoint, options.sequences, rows)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judgements, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-drafts", __doc__)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
