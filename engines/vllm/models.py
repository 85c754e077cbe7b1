"""vLLM-Ascend on simulated CANN with other models than a dense Qwen3: its update and ours.

Run as ``cann-sim run -- python -m engines.vllm.models``. One model is DeepSeek-V3, whose attention
is latent (MLA), also with a number of heads that is padded, and with experts; one is Qwen3-MoE, and
one Mistral with a sliding window. A dense Qwen3 has ATB's paged attention in graphs of some sizes.
`stock` is the engine without this repository, `ours` has our attention update, `both` also our
graphs, `control` is the engine of `ours` once more, with key lengths that are one too small.
transformers judges each token. `turns` decodes the DeepSeek with kernels that do nothing, the
engine's update and ours in turns of one process. Rows go to build/engines/vllm-models.json.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.model_judgements import find_unlikely
from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
    judgements,
)
from engines.running.session_run import make_parser
from engines.vllm.session import ROTATION, Variant, describe, run_load, run_session, run_turns
from engines.vllm.workers.worker_counts import COUNTED

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

KEYS: dict[str, dict[str, Any]] = {
    "stock": {"worker": False},
    "ours": {"key": True},
    "graphs": {"key": {"graphs": True, "attention": False}},
    "both": {"key": {"graphs": True}},
}
# What runs, by model, dtype and mode.
RUNS: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("DeepSeek", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
    ("DeepSeek", "bfloat16", "FULL_AND_PIECEWISE"): ("stock", "ours"),
    ("DeepSeek", "float16", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("DeepSeek, 3 heads", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("DeepSeek, experts", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("Qwen3-MoE", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("Mistral, window of 64", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
    ("Qwen3, paged attention", "bfloat16", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
}
# Graphs of these sizes have it, the others FIA.
PAGED_SIZES = (1, 4, 16)
# So many sequences do not all fit at once: some are preempted.
MANY_SEQUENCES = 100
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("preempted", "full_steps", "waits_in_full_steps", *COUNTED), ""),
    **TOKEN_COLUMNS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelVariant(Variant):
    """One engine to run.

    Attributes:
        model: What is run.
    """

    model: str


def run_tokens(
    variant: ModelVariant, checkpoint: Path, count: int, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row, and that of the control if there is one."""
    made = run_load(variant, checkpoint, count, rows)
    # The control of the second variant of ours would be that of the first once more.
    made = made[:1] if variant.name == "both" else made
    return [row | described(variant) | {"name": row["name"]} for row in made]


def run_model_turns(
    variant: ModelVariant, checkpoint: Path, count: int, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Decode with the engine's graphs and ours in turns; return a row for each."""
    made = run_turns(variant, checkpoint, count, rows)
    return [row | described(variant) | {"name": row["name"]} for row in made]


def described(variant: ModelVariant) -> dict[str, Any]:
    """Return the first fields of a variant's row; rows of one model and mode are compared."""
    ranks = f", {variant.ranks} ranks" if variant.ranks > 1 else ""
    model = {"model": f"{variant.model}, {variant.dtype}{ranks}", "mode": variant.mode}
    dtype = f"{model['model']}, {variant.mode}"
    told = {"note": f"without {' and '.join(variant.left_out)}"} if variant.left_out else {}
    return {**describe(variant), **model, "dtype": dtype, "ranks": variant.ranks, **told}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if theirs is None:
            continue
        is_control = row["name"] == "control"
        wrong += [f"{what}: {text}" for text in find_unlikely(row)]
        if (row["full_steps"] == 0) != (row["mode"] == "PIECEWISE"):
            wrong.append(f"{what}: {row['full_steps']} steps replayed a whole graph")
        if row["preempted"] == 0 and row["sequences"] >= MANY_SEQUENCES:
            wrong.append(f"{what}: no sequence was preempted")
        if row["name"] == "stock":
            continue
        # One wait less for each step of a whole graph.
        before = "synchronisations_of_second_load" if is_control else "synchronisations"
        names = ("preempted", "full_steps", "replays")
        expected = {
            **{name: theirs[name] for name in names},
            "task_updates": theirs["task_updates"] - row["skipped_updates"],
            "synchronisations": theirs[before] - theirs["full_steps"],
        }
        if row["ranks"] == 1:
            # Several workers wait for their tokens in threads of their own, during other steps.
            expected["waits_in_full_steps"] = 0
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options; the judge of a model follows its variants."""
    chosen = [
        ModelVariant(
            name=name,
            dtype=dtype,
            num_layers=options.layers,
            mode=mode,
            model=model,
            paged_sizes=PAGED_SIZES if "paged" in model else (),
            left_out=(ROTATION,) if model.startswith("Mistral") else (),
            **KEYS.get(name, {}),
        )
        for number, ((model, dtype, mode), names) in enumerate(RUNS.items())
        for name in (*names, "transformers")
        if options.runs is None or number in options.runs
    ]
    if options.runs is None or len(RUNS) in options.runs:
        timed = tuple(options.timed_sequences)
        made = {"name": "turns", "dtype": "bfloat16", "model": "DeepSeek", "key": True}
        chosen += [
            ModelVariant(num_layers=layers, timed=timed, **made) for layers in options.timed_layers
        ]
    return chosen


def write_seen(variant: ModelVariant, checkpoint: Path) -> Path:
    """Return a checkpoint of the model as the engine computes it, for transformers to judge by.

    The engine passes its window as the number of tokens before a token, which is one more.
    """
    if not variant.model.startswith("Mistral"):
        return checkpoint
    import torch
    from engines.models import tiny_mistral

    folder = checkpoint.with_name(f"{checkpoint.name}-seen")
    dtype, window = getattr(torch, variant.dtype), tiny_mistral.WINDOW + 1
    tiny_mistral.write_checkpoint(folder, num_layers=variant.num_layers, dtype=dtype, window=window)
    return folder


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    checkpoint = folder / f"{variant.model}-{variant.dtype}-{variant.num_layers}"
    if not checkpoint.exists():
        write_model(variant, checkpoint)
    run = run_model_turns if variant.timed else run_tokens
    call = functools.partial(run, variant, checkpoint, options.sequences, rows)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        checkpoint = write_seen(variant, checkpoint)
        call = functools.partial(judgements, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-models", __doc__)
    parser.set_defaults(layers=2, timed_layers=[28], timed_sequences=[4, 16])
    parser.add_argument(
        "--runs", type=int, nargs="*", help="numbers in RUNS, and of the turns behind"
    )
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
