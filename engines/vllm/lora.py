"""vLLM-Ascend on simulated CANN with adapters (LoRA): its attention update and ours.

Run as ``cann-sim run -- python -m engines.vllm.lora``. Of three sequences one has no adapter and
two have one each, of another rank; all decode in one batch, and the last have none. The operators
that multiply by adapters are stood for by torch (`engines/vllm/without_device/lora_kernels.py`).
The engine alone hangs in its default, in which steps with and without adapters have graphs of their
own (`cudagraph_specialize_lora`): `hangs` shows it. So `stock`, `ours` and `both` (ours, also with
our graphs) have one graph for both, `default` is ours in the engine's default, and `control` the
engine of `ours` once more, with key lengths that are one too small. transformers judges each token
with the adapter added into the weights. Rows go to build/engines/vllm-lora.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.adapter_load import (
    ADAPTERS,
    adapter_names,
    adapter_of,
    judge_rows,
    write_adapters,
)
from engines.load.decode_load import MOST_SEQUENCES, compare_load
from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_run import make_parser
from engines.vllm.models import COLUMNS, KEYS, ModelVariant, described, verdict
from engines.vllm.session import ROTATION, make_engine, measure_engine, run_session
from engines.vllm.without_device import lora_kernels

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

NAMES = ("stock", "ours", "both", "default", "hangs", "transformers")
# What the simulated device says of a step that waits for an event which nothing records.
DEADLOCK = "which was never recorded"


def names_of(count: int) -> list[str | None]:
    """Return the adapter of each sequence; those that end the load have none."""
    return adapter_names(count, without=min(MOST_SEQUENCES, count // 3))


def run_tokens(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with `ours`, also the row of the control."""
    kept = lora_kernels.declare()
    has_graphs_apart = variant.name in {"default", "hangs"}
    llm = make_engine(
        variant,
        checkpoint,
        compilation_config={"cudagraph_specialize_lora": has_graphs_apart},
        enable_lora=True,
        max_loras=len(ADAPTERS),
        max_lora_rank=max(ADAPTERS.values()),
    )
    from vllm.lora.request import LoRARequest

    adapters = {
        name: LoRARequest(name, number, str(adapter_of(checkpoint, name)))
        for number, name in enumerate(ADAPTERS, start=1)
    }
    given = [None if name is None else adapters[name] for name in names_of(count)]
    made = measure_engine(llm, variant, (*compare_load(count), given))
    del kept
    if variant.name in {"both", "default"}:
        # Their control would be that of `ours` once more.
        made = made[:1]
    graphs = "two graphs a size" if has_graphs_apart else "one graph a size"
    told = {"note": f"{described(variant)['note']}; {graphs}"}
    return [row | described(variant) | {"name": row["name"], **told} for row in made]


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = [
        f"hangs: expected the engine alone to hang, found {row.get('error', 'tokens')}"
        for row in rows
        if row["name"] == "hangs" and not row["hung"]
    ]
    # More steps have a graph there than in the engine that it is compared with.
    wrong += [
        text
        for text in verdict([row for row in rows if row["name"] != "hangs"])
        if not (text.startswith("default") and ": expected" in text)
    ]
    return wrong + [
        f"default: {row['waits_in_full_steps']} waits in {row['full_steps']} steps of a graph"
        for row in rows
        if row["name"] == "default" and row.get("waits_in_full_steps")
    ]


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants of a run; the last is the judge."""
    keys = {**KEYS, "default": KEYS["ours"], "hangs": KEYS["stock"]}
    made = functools.partial(
        ModelVariant,
        dtype="bfloat16",
        num_layers=options.layers,
        model="Qwen3, adapters",
        left_out=(ROTATION,),
    )
    return [made(name=name, **keys.get(name, {})) for name in NAMES]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    checkpoint = folder / "model"
    if not checkpoint.exists():
        write_model(variant, checkpoint)
        write_adapters(checkpoint)
    call = functools.partial(run_tokens, variant, checkpoint, options.sequences)
    if variant.name == "transformers":
        call = functools.partial(judge_rows, rows, checkpoint, names_of(options.sequences))
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    made = run_forked(call, described(variant), log)
    if variant.name == "hangs":
        hung = "error" in made[0] and DEADLOCK in log.read_text()
        made = [made[0] | {"hung": hung}]
    return made


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-lora", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    return run_session(choose_variants(options), options, run_apart, COLUMNS, find_wrong)


if __name__ == "__main__":
    sys.exit(main())
