"""vLLM-Ascend on simulated CANN with two processes for one model: its attention update and ours.

Run as ``cann-sim run -- python -m engines.vllm.ranks``. The engine starts two workers, each with a
simulated device of its own, which hold a half of every layer (tensor parallelism) and add up what
they computed by HCCL; with DCP a half of the keys of each sequence too, with PCP that, a half of
each prompt, and whole layers. `stock` is the engine without this repository, `ours` has our
attention update, `both` also our graphs, `graphs` only those, `control` is the engine of `ours`
once more, with key lengths that are one too small on all ranks. transformers judges each token.
Rows go to build/engines/vllm-ranks.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_rows import judgements
from engines.running.session_run import make_parser
from engines.vllm.graphs import PLUGINS
from engines.vllm.models import COLUMNS, KEYS, ModelVariant, described, run_tokens, verdict
from engines.vllm.session import run_session

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

RANKS = 2
LONGEST_SECONDS = 900
# What runs, by model and mode.
RUNS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Qwen3", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
    ("Qwen3", "PIECEWISE"): ("stock", "graphs"),
    ("DeepSeek", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("Qwen3-MoE", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("Qwen3, DCP", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
    ("DeepSeek, DCP", "FULL_DECODE_ONLY"): ("stock", "ours", "both"),
    ("Qwen3, PCP", "FULL_DECODE_ONLY"): ("stock", "ours"),
    ("DeepSeek, PCP", "FULL_DECODE_ONLY"): ("stock", "ours"),
}


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options; the judge of a model follows its variants."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            mode=mode,
            model=model,
            ranks=RANKS,
            decode_parts=RANKS if model.endswith("DCP") else 1,
            prefill_parts=RANKS if model.endswith("PCP") else 1,
            **KEYS.get(name, {}),
        )
        for number, ((model, mode), names) in enumerate(RUNS.items())
        for name in (*names, "transformers")
        if options.runs is None or number in options.runs
    ]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, which starts the ranks; return its rows."""
    checkpoint = folder / variant.model
    if not checkpoint.exists():
        write_model(variant, checkpoint)
    call = functools.partial(run_tokens, variant, checkpoint, options.sequences, rows)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judgements, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log, LONGEST_SECONDS)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-ranks", __doc__)
    parser.set_defaults(layers=2)
    parser.add_argument("--runs", type=int, nargs="*", help="numbers in RUNS; all without it")
    options = parser.parse_args()
    variants = choose_variants(options)
    return run_session(
        variants,
        options,
        run_apart,
        COLUMNS,
        verdict,
        CANN_SIM_DEVICES=str(RANKS),
        VLLM_PLUGINS=",".join(PLUGINS),
    )


if __name__ == "__main__":
    sys.exit(main())
