"""SGLang on simulated CANN with adapters (LoRA): its attention update and ours.

Run as ``cann-sim run -- python engines/sglang_lora.py``. Of three sequences one has no adapter and
two have one each, of the same rank or of another; all decode in one batch. The two operators that
multiply by them are stood for by torch (`sglang_lora_kernels.py`). Variants are those of
sglang_models.py. transformers judges each token with the adapter added into the weights. Rows go to
build/engines/sglang-lora.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from decode_load import compare_load, judge_tokens
from session_run import make_parser
from sglang_models import (
    ModelVariant,
    checkpoint_of,
    choose_variants,
    described,
    run_apart,
    run_session,
)
from sglang_session import run_load
from tiny_models import write_model

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

RUNS = (("Qwen3, adapters", "bfloat16"),)
ADAPTERS = {"first": 8, "second": 4}
"""Names and ranks."""


def run_variant(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    paths = {name: str(checkpoint.with_name(f"{checkpoint.name}-{name}")) for name in ADAPTERS}
    names = [None, *ADAPTERS]
    rows = run_load(
        variant,
        checkpoint,
        count,
        given={"lora_path": [names[number % len(names)] for number in range(count)]},
        lora_paths=paths,
        max_loras_per_batch=len(names),
        lora_backend="ascend",
        **variant.options(),
    )
    return [row | described(variant) | {"name": row["name"]} for row in rows]


def merged_of(checkpoint: Path, name: str) -> Path:
    """Return where the model with an adapter added is."""
    return checkpoint.with_name(f"{checkpoint.name}-with-{name}")


def judge_rows(rows: list[dict[str, Any]], checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Return what transformers says of the tokens of each row, by the adapter of each sequence."""
    prompts, _ = compare_load(count)
    models = [checkpoint, *(merged_of(checkpoint, name) for name in ADAPTERS)]
    judged = []
    for row in rows:
        if "tokens" not in row:
            continue
        found = [
            judge_tokens(
                model, prompts[number :: len(models)], row["tokens"][number :: len(models)]
            )
            for number, model in enumerate(models)
        ]
        figures = {
            "likeliest_tokens": sum(likeliest for likeliest, _ in found),
            "worst_token": max(worst for _, worst in found),
        }
        judged.append({"judged": row["name"], "dtype": row["dtype"], **figures})
    return judged


def run_apart_with_adapters(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in processes of its own, which end with it, and return its rows."""
    checkpoint = checkpoint_of(variant, folder)
    if not checkpoint.exists():
        from tiny_lora import write_adapter

        write_model(variant, checkpoint)
        for seed, (name, rank) in enumerate(ADAPTERS.items()):
            adapter = checkpoint.with_name(f"{checkpoint.name}-{name}")
            merged = merged_of(checkpoint, name)
            write_adapter(checkpoint, adapter, merged, rank=rank, seed=seed)
    if variant.name == "transformers":
        return judge_rows(rows, checkpoint, options.sequences)
    return run_apart(variant, number, rows, options, folder)


if __name__ == "__main__":
    sys.exit(
        run_session(
            __file__,
            make_parser("sglang-lora", __doc__),
            functools.partial(choose_variants, RUNS),
            run=run_variant,
            apart=run_apart_with_adapters,
        )
    )
