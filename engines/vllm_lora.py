"""vLLM-Ascend on simulated CANN with LoRA adapters: its attention update and ours.

Run as ``cann-sim run -- python engines/vllm_lora.py``. Sequences of two adapters and of none are
decoded together, at the rank from which on the engine computes adapters by operators of torch: its
own kernels for lower ranks are compiled for the device. `stock` is the engine without this
repository, `ours` has our attention update, `both` also our graphs, `control` is `ours` once more
with key lengths that are one too small. transformers judges each token, by the checkpoint into
which the sequence's adapter was merged. Rows go to build/engines/vllm-lora.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import vllm_stand_ins
from decode_load import compare_load, judge_tokens
from forked_variant import run_forked
from session_run import conclude, make_parser, run_variants
from tiny_lora import RANK, write_adapter
from vllm_models import COLUMNS, KEYS, ModelVariant, described, verdict, write_model
from vllm_session import make_engine, measure_engine

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

ADAPTERS = 2
NAMES = ("stock", "ours", "both", "transformers")


def run_tokens(
    variant: ModelVariant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load, its sequences with one adapter or another, and return the variant's rows."""
    from vllm.lora.request import LoRARequest

    llm = make_engine(variant, checkpoint, enable_lora=True, max_loras=ADAPTERS, max_lora_rank=RANK)
    adapters = [
        LoRARequest(f"adapter {number}", number, str(adapter_of(checkpoint, number)))
        for number in range(1, 1 + ADAPTERS)
    ]
    requests = [None, *adapters]
    chosen = [requests[number % len(requests)] for number in range(count)]
    llm.generate = functools.partial(llm.generate, lora_request=chosen)
    made = measure_engine(llm, variant, compare_load(count))
    made = made[:1] if variant.name == "both" else made
    return [row | described(variant) | {"name": row["name"]} for row in made]


def adapter_of(checkpoint: Path, number: int) -> Path:
    """Return the folder of an adapter."""
    return checkpoint.with_name(f"{checkpoint.name}-adapter-{number}")


def merged_of(checkpoint: Path, number: int) -> Path:
    """Return the checkpoint into which an adapter was merged; 0 for none."""
    return checkpoint.with_name(f"{checkpoint.name}-merged-{number}") if number else checkpoint


def judge(
    rows: list[dict[str, Any]], dtype: str, checkpoint: Path, count: int
) -> list[dict[str, Any]]:
    """Return what transformers says about the tokens of each row, each adapter by its own model."""
    prompts, _ = compare_load(count)
    judged = []
    for row in rows:
        of_adapters = [
            judge_tokens(
                merged_of(checkpoint, number),
                prompts[number :: 1 + ADAPTERS],
                row["tokens"][number :: 1 + ADAPTERS],
            )
            for number in range(1 + ADAPTERS)
        ]
        likeliest, worst = zip(*of_adapters, strict=True)
        figures = {"likeliest_tokens": sum(likeliest), "worst_token": max(worst)}
        judged.append({"judged": row["name"], "dtype": dtype, **figures})
    return judged


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants that a run was asked for."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            model="Qwen3, LoRA",
            # torch_npu 2.13's fails on `repeat_interleave` of the engine's adapters.
            by_ex=False,
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
    """Run a variant in a process forked from this one, and return its rows."""
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists():
        write_model(variant, checkpoint)
        for each in range(1, 1 + ADAPTERS):
            adapter, merged = adapter_of(checkpoint, each), merged_of(checkpoint, each)
            write_adapter(checkpoint, adapter, merged, seed=each)
    call = functools.partial(run_tokens, variant, checkpoint, options.sequences, rows)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judge, rows, dtype, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-lora", __doc__)
    parser.set_defaults(layers=2, sequences=200)
    options = parser.parse_args()
    vllm_stand_ins.set_environment()
    kept = vllm_stand_ins.prepare()
    import vllm_ascend.platform  # noqa: F401

    rows = run_variants(choose_variants(options), options, run_apart)
    del kept
    return conclude(rows, COLUMNS, "vLLM 0.23.0 + vllm-ascend 0.23.0", verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
